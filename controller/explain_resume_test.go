package controller_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
)

// What explain lists is what a resume then does: the steps, after which the sandbox is READY; or a refusal, and a resume that is accepted
// anyway fails for that reason. Neither creates a container.
func TestExplainShowsTheStepsOfAResume(t *testing.T) {
	const network, primary, service = "agbox-net-box-0", "agbox-primary-box-0", "agbox-svc-box-0-db"
	start := "start-container " + service + " (resume)"
	connected := []string{
		"create-network " + network + " (resume)", "connect-network " + primary + " (disconnected)",
		"connect-network " + service + " (disconnected)", start,
	}
	for _, c := range []struct {
		name    string
		happens []act
		state   agboxv1.SandboxState
		steps   []string
		refusal string
	}{
		{"it runs: nothing is listed", nil, ready, nil, ""},
		{"it is paused: nothing is listed", []act{{"pause", 0}}, agboxv1.SandboxState_SANDBOX_STATE_PAUSED, nil, ""},
		{"its delete does not end: nothing is listed", []act{{"kill box", 0}, {"engine down", 0}, {"delete", 0}}, agboxv1.SandboxState_SANDBOX_STATE_DELETING, nil, ""},
		{"its primary was killed", []act{{"kill box", 0}}, failed, []string{start}, ""},
		{"its network was removed", []act{{"remove network", 0}}, failed, connected, ""},
		{"it was stopped", []act{{"stop", 0}}, stopped, []string{start}, ""},
		{"it was stopped, and its network pruned", []act{{"stop", 0}, {"remove network", 0}}, stopped, connected, ""},
		{"its primary was killed, and a required service removed", []act{{"kill box", 0}, {"remove service", 0}}, failed, nil,
			"the container of the required service db is missing; delete it, or apply it again with --replace"},
		{"its primary was removed", []act{{"remove box", 0}}, failed, nil,
			"the primary container is missing; delete it, or apply it again with --replace"},
	} {
		t.Run(c.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				id := p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{checked(p, "db")}})
				pass(10 * time.Second)
				p.wantState(t, id, ready)
				for _, a := range c.happens {
					p.must(t, a)
					pass(time.Minute)
				}
				p.wantState(t, id, c.state)
				changes := p.changes()
				e := p.explain(t, id)
				if n := p.changes() - changes; n > 0 {
					t.Errorf("the explanation made %d changes in the engine", n)
				}
				if !slices.Equal(e.GetResumeSteps(), c.steps) || e.GetResumeRefusal() != c.refusal {
					t.Errorf("explained as %q, refused for %q", e.GetResumeSteps(), e.GetResumeRefusal())
				}
				if len(c.steps) > 0 || c.refusal != "" {
					p.wantResumeAsExplained(t, id, e)
				}
			}, seldom)
		})
	}
}

// wantResumeAsExplained requests a resume, whether or not the explanation refuses it.
func (p *player) wantResumeAsExplained(t *testing.T, id string, e *agboxv1.ExplainResponse) {
	t.Helper()
	made := map[string]int{}
	for _, op := range []string{dockerx.OpCreateContainer, dockerx.OpCreateNetwork, dockerx.OpConnectNetwork} {
		made[op] = -p.engine.Calls(op)
	}
	if _, err := p.store.RequestRecover(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	pass(time.Minute)
	for op := range made {
		made[op] += p.engine.Calls(op)
	}
	steps := strings.Join(e.GetResumeSteps(), "\n")
	for op, step := range map[string]string{
		dockerx.OpCreateContainer: "create-container ", dockerx.OpCreateNetwork: "create-network ", dockerx.OpConnectNetwork: "connect-network ",
	} {
		if (made[op] > 0) != strings.Contains(steps, step) { // a later pass may connect a container that was disconnected again
			t.Errorf("%d calls of %s, explained was\n%s", made[op], op, steps)
		}
	}
	if e.GetResumeRefusal() == "" {
		p.wantState(t, id, ready)
		return
	}
	p.wantState(t, id, failed)
	if message := p.sandbox(t, id).ErrorMessage; !strings.HasPrefix(e.GetResumeRefusal(), message+";") {
		t.Errorf("it failed with %q, explained was %q", message, e.GetResumeRefusal())
	}
}

func TestAResumeAfterAFailedCreateIsRefused(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.engine.RemoveImageOutside(image)
		p.engine.FailPulls(image, errdefs.ErrNotFound)
		id := p.create(t, &agboxv1.CreateSpec{})
		pass(time.Minute)
		p.wantState(t, id, failed)
		e := p.explain(t, id)
		if len(e.GetResumeSteps()) > 0 || !strings.HasPrefix(e.GetResumeRefusal(), "its create failed") {
			t.Errorf("explained as %q, refused for %q", e.GetResumeSteps(), e.GetResumeRefusal())
		}
		if !strings.HasSuffix(e.GetWaiting(), "it can't be resumed: "+e.GetResumeRefusal()) {
			t.Errorf("it waits for %q", e.GetWaiting())
		}
	}, seldom)
}

// changes counts the calls that change the engine.
func (p *player) changes() (n int) {
	for _, op := range dockerx.Ops() {
		verb, _, _ := strings.Cut(op, "_")
		if slices.Contains([]string{"create", "start", "stop", "kill", "remove", "update", "pause", "unpause", "write", "connect", "pull"}, verb) {
			n += p.engine.Calls(op)
		}
	}
	return n
}
