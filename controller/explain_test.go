package controller_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

func (p *player) explain(t *testing.T, id string) *agboxv1.ExplainResponse {
	t.Helper()
	e, err := p.daemon.Explain(context.Background(), id)
	if err != nil {
		t.Fatalf("explain %s: %v", id, err)
	}
	return e
}

// wantLine fails unless a line has the prefix.
func wantLine(t *testing.T, what string, lines []string, prefix string) {
	t.Helper()
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) }) {
		t.Errorf("%s: no line begins with %q:\n  %s", what, prefix, strings.Join(lines, "\n  "))
	}
}

// wantQuiet fails if the explanation has a difference or a step.
func wantQuiet(t *testing.T, e *agboxv1.ExplainResponse) {
	t.Helper()
	if len(e.GetDifferences())+len(e.GetNextSteps()) > 0 || e.GetWaiting() != "" || e.GetLastError() != "" || e.GetRetryAt() != nil || e.GetTries() != 0 {
		t.Errorf("it is as wanted, and explained as %v", e)
	}
}

func wantDeadline(t *testing.T, e *agboxv1.ExplainResponse, kind, action string, at time.Time) {
	t.Helper()
	for _, d := range e.GetDeadlines() {
		if d.GetKind() == kind {
			if d.GetAction() != action || !d.GetAt().AsTime().Equal(at) {
				t.Errorf("%s at %s, want %s at %s", d.GetAction(), d.GetAt().AsTime(), action, at)
			}
			return
		}
	}
	t.Errorf("no %s among %v", kind, e.GetDeadlines())
}

func lasting(c *controller.Config) {
	s := &c.Settings
	s.IdleTTL, s.CleanupTTL, s.FreezeDuration, s.StoppedGCAfter = time.Hour, 2*time.Hour, 3*time.Hour, 4*time.Hour
}

func TestExplainOfAConvergedSandbox(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{
			RequiredServices: []*agboxv1.ServiceSpec{checked(p, "db")}, Ports: []*agboxv1.PortSpec{{ContainerPort: 80}},
		})
		pass(10 * time.Second)
		p.wantState(t, id, ready)
		ports := p.daemon.Ports(id)
		e := p.explain(t, id)
		wantQuiet(t, e)
		if e.GetDesired() != "run" || e.GetState() != ready || len(e.GetObserved()) != 4 {
			t.Errorf("explained as %v", e)
		}
		wantLine(t, "observed", e.GetObserved(), "engine: answers, version ")
		wantLine(t, "observed", e.GetObserved(), "container agbox-primary-box-0 (primary): running, started 2000-")
		wantLine(t, "observed", e.GetObserved(), "container agbox-svc-box-0-db (service db): running, healthy, started ")
		wantLine(t, "observed", e.GetObserved(), "network agbox-net-box-0 (")
		wantDeadline(t, e, "idle_ttl", "stop", p.sandbox(t, id).IdleSince.Add(time.Hour))
		if got := p.daemon.Ports(id); len(ports) != 1 || len(got) != 1 || got[0] != ports[0] {
			t.Errorf("the ports were %v and are %v", ports, got)
		}
		p.must(t, act{"stop", 0})
		pass(time.Minute)
		e = p.explain(t, id)
		wantQuiet(t, e)
		wantLine(t, "observed", e.GetObserved(), "container agbox-primary-box-0 (primary): ended with exit code ")
		wantDeadline(t, e, "cleanup_ttl", "delete", p.sandbox(t, id).StateChangedAt.Add(2*time.Hour))
	}, lasting)
}

func TestExplainNamesDifferencesAndNextStep(t *testing.T) {
	for _, c := range []struct {
		name        string
		happens     func(p *player)
		differs     string
		next, waits string
		desired     string
	}{
		{
			name: "a service that was killed", happens: func(p *player) { p.engine.ExitContainer(p.service(0), 3, false) },
			differs: "container agbox-svc-box-0-db is not running: it ended with exit code 3", desired: "run",
		},
		{
			name: "a stop that the engine refuses", desired: "stop",
			happens: func(p *player) {
				p.engine.Fail(dockerx.OpStopContainer, 1000, nil, false)
				_ = p.do(act{"stop", 0})
			},
			differs: "container agbox-primary-box-0 is running, not stopped", next: "stop-container agbox-primary-box-0 (stop-requested)",
			waits: "retrying: ",
		},
		{
			name: "a delete that the engine refuses", desired: "delete",
			happens: func(p *player) {
				p.engine.Fail(dockerx.OpRemoveNetwork, 1000, nil, false)
				_ = p.do(act{"delete", 0})
			},
			differs: "network ", next: "record SANDBOX_DELETED", waits: "retrying: ",
		},
		{
			name: "a second primary that can't be removed", desired: "run",
			happens: func(p *player) {
				p.engine.Fail(dockerx.OpRemoveContainer, 1000, nil, false)
				_ = p.do(act{"double primary", 0})
			},
			differs: "container agbox-primary-box-0-double is not of the spec", next: "remove-container agbox-primary-box-0-double (not-in-spec)", waits: "retrying: ",
		},
		{
			name: "a primary that was killed", desired: "run", happens: func(p *player) { p.engine.ExitContainer(p.container(0), 3, false) },
			differs: "the state is FAILED (CONTAINER_DIED: ", waits: "a failed sandbox is not tried again",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				id := p.create(t, &agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{checked(p, "db")}})
				pass(10 * time.Second)
				p.wantState(t, id, ready)
				c.happens(p)
				pass(time.Minute)
				e := p.explain(t, id)
				if e.GetDesired() != c.desired || !strings.HasPrefix(e.GetWaiting(), c.waits) || c.waits == "" && e.GetWaiting() != "" {
					t.Errorf("wanted %q, waits for %q", e.GetDesired(), e.GetWaiting())
				}
				wantLine(t, "differences", e.GetDifferences(), c.differs)
				if c.next != "" {
					wantLine(t, "next", e.GetNextSteps(), c.next)
				} else if len(e.GetNextSteps()) > 0 {
					t.Errorf("next: %v", e.GetNextSteps())
				}
			})
		})
	}
}

func TestABackOffIsExplainedUntilItIsOver(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		const secret = "hunter2-hunter2"
		refused := errdefs.ErrUnavailable.WithMessage("no room for X=" + secret)
		p.engine.Fail(dockerx.OpCreateContainer, 1000, refused, false)
		id := p.create(t, &agboxv1.CreateSpec{Envs: map[string]string{"X": secret}})
		pass(time.Minute)
		e := p.explain(t, id)
		if e.GetTries() < 5 || !strings.Contains(e.GetLastError(), "no room for X=[redacted]") || strings.Contains(e.String(), secret) {
			t.Errorf("explained as %v", e)
		}
		left := time.Until(e.GetRetryAt().AsTime())
		if left <= 0 || left > 30*time.Second {
			t.Errorf("the next try is in %s", left)
		}
		wantLine(t, "differences", e.GetDifferences(), "the state is PENDING, not READY")
		wantLine(t, "differences", e.GetDifferences(), "container agbox-primary-box-0 is missing")
		wantLine(t, "next", e.GetNextSteps(), "ensure-image "+image+" (create)")
		wantLine(t, "next", e.GetNextSteps(), "create-primary agbox-primary-box-0 (create)")
		wantLine(t, "next", e.GetNextSteps(), "start-container agbox-primary-box-0 (create)")
		wantLine(t, "next", e.GetNextSteps(), "release agbox-primary-box-0 (create)")
		calls := p.engine.Calls(dockerx.OpCreateContainer)
		pass(left - time.Millisecond)
		if n := p.engine.Calls(dockerx.OpCreateContainer); n != calls {
			t.Errorf("%d tries before it was due", n-calls)
		}
		p.engine.Heal()
		pass(2 * time.Millisecond)
		pass(time.Second)
		p.wantState(t, id, ready)
		wantQuiet(t, p.explain(t, id))
	})
}

func TestALongOperationIsExplained(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		pulling(p)
		p.must(t, act{"create", 0})
		pass(10 * time.Second)
		if e := p.explain(t, "box-0"); !strings.HasPrefix(e.GetWaiting(), "pulling image "+image) || e.GetRetryAt() != nil {
			t.Errorf("explained as %v", e)
		}
	})
}

func TestExplainWithoutTheEngine(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		pass(time.Minute)
		p.engine.Down(true)
		pass(time.Second)
		down := time.Now()
		for range 2 {
			e := p.explain(t, id)
			if !strings.HasPrefix(e.GetEngineProblem(), "the Docker engine ") || e.GetWaiting() != e.GetEngineProblem() || e.GetState() != ready {
				t.Errorf("explained as %v", e)
			}
			if since := e.GetEngineProblemSince().AsTime(); since.Before(down.Add(-time.Second)) || since.After(down) {
				t.Errorf("since %s, want %s", since, down)
			}
			wantLine(t, "observed", e.GetObserved(), "not observed; recorded as READY since 2000-")
			if len(e.GetDifferences())+len(e.GetNextSteps()) > 0 {
				t.Errorf("a verdict without the engine: %v", e)
			}
			wantDeadline(t, e, "idle_ttl", "stop", p.sandbox(t, id).IdleSince.Add(time.Hour))
			pass(10 * time.Minute)
		}
		p.engine.Down(false)
		pass(time.Minute)
		e := p.explain(t, id)
		wantQuiet(t, e)
		if e.GetEngineProblem() != "" || e.GetEngineProblemSince() != nil {
			t.Errorf("explained as %v", e)
		}
	}, lasting)
}

func TestAnEngineThatHangsIsWaitedForTenSeconds(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.engine.Delay(dockerx.OpListContainers, time.Hour)
		begun := time.Now()
		e := p.explain(t, id)
		if took := time.Since(begun); took != 10*time.Second || !strings.HasPrefix(e.GetWaiting(), "no verdict: ") {
			t.Errorf("after %s: %v", took, e)
		}
		p.engine.Heal()
	})
}

func TestExplainOfADeletedSandbox(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.must(t, act{"delete", 0})
		pass(time.Minute)
		leftover(t, p, id)
		leftover(t, p, "never-known")
		pass(time.Second)
		e := p.explain(t, id)
		if e.GetDesired() != "delete" || e.GetState() != deleted || !strings.Contains(e.GetWaiting(), "orphans kept") {
			t.Errorf("explained as %v", e)
		}
		wantLine(t, "differences", e.GetDifferences(), "container left-box-0 is still there")
		pass(2 * time.Hour) // its history is purged
		if e := p.explain(t, id); e.GetState() != deleted {
			t.Errorf("explained as %v", e)
		}
		if e := p.explain(t, "never-known"); e.GetDesired() != "" || !strings.Contains(e.GetWaiting(), "never knew") || len(e.GetNextSteps()) > 0 {
			t.Errorf("explained as %v", e)
		}
		if _, err := p.daemon.Explain(t.Context(), "nobody"); !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	}, func(c *controller.Config) { c.Settings.KeepOrphans, c.Settings.EventRetention = true, time.Hour })
}

func TestAPausedSandboxIsExplainedWithItsDeadlines(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{Timeout: durationpb.New(30 * time.Minute), OnTimeout: "pause"})
		pass(time.Second)
		e, sb := p.explain(t, id), p.sandbox(t, id)
		wantDeadline(t, e, "timeout", "pause", time.Unix(0, sb.Desired.GetDeadlineAt()))
		if e.GetDeadlines()[0].GetKind() != "timeout" || e.GetDeadlines()[1].GetKind() != "idle_ttl" {
			t.Errorf("not the soonest first: %v", e.GetDeadlines())
		}
		pass(30 * time.Minute)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
		e = p.explain(t, id)
		wantQuiet(t, e)
		wantLine(t, "observed", e.GetObserved(), "container agbox-primary-box-0 (primary): paused")
		wantDeadline(t, e, "freeze_duration", "demote", p.sandbox(t, id).StateChangedAt.Add(3*time.Hour))
		p.engine.Fail(dockerx.OpPauseContainer, 1000, nil, false)
		p.engine.PauseOutside(p.container(0), false)
		pass(time.Second)
		e = p.explain(t, id)
		wantLine(t, "differences", e.GetDifferences(), "container agbox-primary-box-0 is running, not paused")
		wantLine(t, "next", e.GetNextSteps(), "pause-container agbox-primary-box-0 (started-from-outside)")
		p.engine.Heal()
		pass(3*time.Hour + time.Minute)
		e = p.explain(t, id)
		wantQuiet(t, e)
		wantDeadline(t, e, "stopped_gc_after", "delete", time.Unix(0, p.sandbox(t, id).Desired.GetDemotedAt()).Add(4*time.Hour))
		if len(e.GetDeadlines()) != 1 || e.GetDesired() != "pause" {
			t.Errorf("explained as %v", e)
		}
	}, lasting)
}

// checkExplained checks that a sandbox at rest is explained as such.
func (p *player) checkExplained(id string) error {
	e, err := p.daemon.Explain(context.Background(), id)
	if err != nil {
		return err
	}
	failed := e.GetState() == failed || p.mayFail(id)
	if len(e.GetNextSteps()) > 0 || e.GetLastError() != "" || len(e.GetDifferences()) > 0 && !failed {
		return fmt.Errorf("nothing happens any more, and it is explained as %v", e)
	}
	return nil
}

// damaged is a store in which the record of one sandbox does not decode.
type damaged struct {
	controller.Store
	id string
}

func (d *damaged) Sandbox(ctx context.Context, id string) (store.Sandbox, error) {
	if id == d.id {
		return store.Sandbox{ID: id, State: ready, Corrupt: true}, errdefs.ErrDataLoss
	}
	return d.Store.Sandbox(ctx, id)
}

func TestADamagedRecordIsExplained(t *testing.T) {
	d := &damaged{}
	withDaemon(t, func(t *testing.T, p *player) {
		d.id = p.readyBox(t)
		e := p.explain(t, d.id)
		if e.GetState() != ready || !strings.Contains(e.GetWaiting(), "damaged") || len(e.GetNextSteps())+len(e.GetDifferences()) > 0 {
			t.Errorf("explained as %v", e)
		}
	}, func(c *controller.Config) { d.Store, c.Store = c.Store, d })
}

// leftover creates a container and a network of a sandbox that no longer exists.
func leftover(t *testing.T, p *player, id string) {
	t.Helper()
	labels := map[string]string{naming.Instance: p.store.InstanceID(), naming.SandboxID: id}
	network, err := p.engine.CreateNetwork(t.Context(), dockerx.NetworkSpec{Name: "net-" + id, Labels: labels})
	if err != nil {
		t.Fatal(err)
	}
	spec := dockerx.ContainerSpec{Name: "left-" + id, Image: image, Labels: labels, NetworkID: network.ID}
	if _, err := p.engine.CreateOutside(spec); err != nil {
		t.Fatal(err)
	}
}

// An explanation at any moment changes neither the engine, nor the record, nor the memory of the passes.
func TestAnExplanationLeavesNoTrace(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{checked(p, "db", "sleep 90000 0")}})
		for _, happens := range []func(){
			func() {}, func() { pass(time.Second) }, func() { pass(10 * time.Second) }, // its hook runs
			func() { p.must(t, act{"delete", 0}) },
			func() {
				pass(time.Minute)
				p.must(t, act{"create", 0})
				p.engine.Fail(dockerx.OpCreateNetwork, 1000, nil, false)
				pass(time.Second)
				p.engine.RemoveVolumeOutside(naming.MarkerVolume(p.store.InstanceID()))
				id = "box-1"
			},
		} {
			happens()
			pass(0)
			calls, sequence := p.calls(), p.sandbox(t, id).LastSequence
			for range 20 {
				p.explain(t, id)
			}
			now := p.calls()
			for _, read := range []string{dockerx.OpListContainers, dockerx.OpListNetworks, dockerx.OpInspectContainer, dockerx.OpInspectVolume, dockerx.OpInfo} {
				delete(now, read)
				delete(calls, read)
			}
			if !maps.Equal(now, calls) || p.sandbox(t, id).LastSequence != sequence {
				t.Errorf("calls before %v, after %v", calls, now)
			}
		}
		p.engine.Heal()
	})
}
