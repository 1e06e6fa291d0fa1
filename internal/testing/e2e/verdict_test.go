//go:build docker

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// A second storage driver on the same data root shows no container, and all volumes and networks.
func TestAnEngineWithAnotherStorageDriverIsNotJudged(t *testing.T) {
	t.Parallel()
	e := newEngine(t, "--live-restore", "--storage-driver=overlay2")
	const keeps = "[runtime]\nresync_interval = \"2s\"\n"
	d := newDaemon(t, e.Host(), keeps)
	running, halted := d.create(nil), d.create(nil)
	d.await(running, ready)
	d.await(halted, ready)
	d.stopBox(halted)
	d.await(halted, stopped)
	x := d.exec(running, "sh", "-c", "sleep 45; exit 5")
	d.started(x)
	pid := strings.TrimSpace(d.docker("inspect", "-f", "{{.State.Pid}}", naming.Primary(running)))

	e.Stop()
	e.Start("--live-restore", "--storage-driver=vfs")
	d.eventually("the daemon notices", func() error {
		if problem := d.problem(); !strings.Contains(problem, "vfs") {
			return fmt.Errorf("the engine's problem is %q", problem)
		}
		return nil
	})
	d.kill() // the engine's identity must be on record
	d.conf = keeps + "cleanup_ttl = \"10s\"\n"
	d.start()
	// Twice cleanup_ttl, in which wrong verdicts and deletes would come: that they do not is no event to wait for.
	time.Sleep(20 * time.Second)
	if s, other := d.state(running), d.state(halted); s != ready || other != stopped {
		t.Errorf("they are %s and %s while their engine shows others", s, other)
	}
	d.kill()
	d.conf = keeps // the stopped one is due
	d.start()
	e.Stop()
	e.Start("--live-restore", "--storage-driver=overlay2")
	d.eventually("the engine is believed again", func() error {
		if problem := d.problem(); problem != "" {
			return fmt.Errorf("%s", problem)
		}
		return nil
	})
	if st := d.ended(x.GetExecId()); st.GetExitCode() != 5 {
		t.Errorf("the exec: %s, code %d, %s", st.GetState(), st.GetExitCode(), st.GetError())
	}
	if now := strings.TrimSpace(d.docker("inspect", "-f", "{{.State.Pid}}", naming.Primary(running))); now != pid {
		t.Errorf("the primary was %s and is %s", pid, now)
	}
	if types := d.types(running) + d.types(halted); strings.Contains(types, "FAILED FAILED") || strings.Contains(types, "DELETE") {
		t.Errorf("%s", types)
	}
	if s := d.state(halted); s != stopped || strings.Contains(d.types(halted), "FAILED") {
		t.Errorf("the stopped one is %s: %s", s, d.types(halted))
	}
	d.resume(halted)
	for _, id := range []string{running, halted} {
		d.await(id, ready)
		d.sh(id, "true")
		d.remove(id)
	}
}

// problem is what the daemon says is wrong with its engine.
func (d *daemon) problem() string {
	d.Helper()
	return must(d.Ping(d.ctx(), &agboxv1.PingRequest{}))(d).GetEngineProblem()
}

func TestEmptyListsDestroyNothing(t *testing.T) {
	t.Parallel()
	for name, paths := range map[string][]string{
		"containers": {"/containers/json"}, "networks": {"/networks"}, "both": {"/containers/json", "/networks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLiar(t)
			d := newDaemon(t, l.host, "[runtime]\nresync_interval = \"1s\"\n")
			running, halted := d.create(nil), d.create(nil)
			d.await(running, ready)
			d.await(halted, ready)
			d.stopBox(halted)
			d.await(halted, stopped)
			x := d.exec(running, "sh", "-c", "sleep 20; exit 6")
			d.started(x)
			l.tell(nothing(paths...))
			time.Sleep(14 * time.Second) // longer than the two looks of a verdict, whose absence is no event to wait for
			l.truth()
			if st := d.ended(x.GetExecId()); st.GetExitCode() != 6 {
				t.Errorf("the exec: %s, code %d, %s", st.GetState(), st.GetExitCode(), st.GetError())
			}
			if a, b := d.types(running), d.types(halted); strings.Contains(a+b, "SANDBOX_FAILED") || strings.Contains(a, "READY FAILED") ||
				d.state(running) != ready || d.state(halted) != stopped {
				t.Errorf("%s; %s", a, b)
			}
			d.remove(running)
			d.remove(halted)
		})
	}
}

// An engine that denies a container for long enough gets its verdict. Nothing is destroyed for it.
func TestAVerdictThatALaterObservationContradictsIsWithdrawn(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	d := newDaemon(t, l.host, "[runtime]\nresync_interval = \"1s\"\n")
	id := d.create(nil)
	d.await(id, ready)
	pid := strings.TrimSpace(d.docker("inspect", "-f", "{{.State.Pid}}", naming.Primary(id)))
	l.tell(hiding)
	d.await(id, failed)
	if code := d.errorCode(id); code != "CONTAINER_MISSING" {
		t.Fatalf("it failed with %s", code)
	}
	l.truth()
	d.eventually("the verdict is withdrawn", func() error {
		if s := d.state(id); s != ready {
			return fmt.Errorf("it is %s", s)
		}
		return nil
	})
	if types := d.types(id); types != "ACCEPTED PREPARING READY FAILED RECOVERED" {
		t.Errorf("%s", types)
	}
	if now := strings.TrimSpace(d.docker("inspect", "-f", "{{.State.Pid}}", naming.Primary(id))); now != pid || pid == "0" {
		t.Errorf("the primary was %s and is %s", pid, now)
	}
	d.sh(id, "true")

	// While an exec runs in the container, no verdict follows an engine that denies it.
	x := d.exec(id, "sh", "-c", "sleep 18; exit 7")
	d.started(x)
	l.tell(hiding)
	if st := d.ended(x.GetExecId()); st.GetExitCode() != 7 {
		t.Errorf("the exec: %s, code %d, %s", st.GetState(), st.GetExitCode(), st.GetError())
	}
	l.truth()
	d.await(id, ready)
	d.remove(id)
}

func TestSandboxesThatVanishTogetherWaitForAnOperator(t *testing.T) {
	t.Parallel()
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.http = freeAddress(t)
	d.conf = "[runtime]\nresync_interval = \"1s\"\n"
	d.start()
	one, two, other := d.create(nil), d.create(nil), d.create(nil)
	for _, id := range []string{one, two, other} {
		d.await(id, ready)
	}
	d.kill()
	d.docker("rm", "-f", naming.Primary(one), naming.Primary(two))
	// agboxd asks the engine for the events of the last 10 s when it starts, and the removals among them would be proof.
	time.Sleep(12 * time.Second)
	d.start()
	d.eventually("readyz says it", func() error {
		if body := d.readyz(); !strings.Contains(body, "2 sandboxes vanished") {
			return fmt.Errorf("%s", body)
		}
		return nil
	})
	for _, id := range []string{one, two, other} {
		if s := d.state(id); s != ready {
			t.Errorf("%s is %s before a confirmation", id, s)
		}
	}
	d.sh(other, "true") // the others go on
	if got := d.get("/metrics"); !strings.Contains(got, "\nagboxd_sandboxes_vanished 2\n") {
		t.Errorf("the metrics do not say it:\n%s", got)
	}
	done := must(d.admin().ConfirmEngine(d.ctx(), &agboxv1.ConfirmEngineRequest{}))(t)
	if got := done.GetGivenUp(); !slices.Equal(got, slices.Sorted(slices.Values([]string{one, two}))) || len(done.GetUndecided()) > 0 {
		t.Errorf("it gave up %s and %s, and says %v", one, two, done)
	}
	d.kill() // what was confirmed is on record
	d.start()
	for _, id := range []string{one, two} {
		d.await(id, failed)
		if code := d.errorCode(id); code != "CONTAINER_MISSING" {
			t.Errorf("%s", code)
		}
	}
	for _, id := range []string{one, two, other} {
		d.remove(id)
	}
}

// An operator who confirms right after the start gets the same answer: the call waits for both looks.
func TestAConfirmationRightAfterTheStartWaitsForBothObservations(t *testing.T) {
	t.Parallel()
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.start()
	boxes := []string{d.create(nil), d.create(nil)}
	other := d.create(nil)
	for _, id := range append(boxes, other) {
		d.await(id, ready)
	}
	d.kill()
	d.docker("rm", "-f", naming.Primary(boxes[0]), naming.Primary(boxes[1]))
	// agboxd asks the engine for the events of the last 10 s when it starts, and the removals among them would be proof.
	time.Sleep(12 * time.Second)
	d.start()
	begun := time.Now()
	done := must(d.admin().ConfirmEngine(d.ctx(), &agboxv1.ConfirmEngineRequest{}))(t)
	t.Logf("confirmed within %s", time.Since(begun).Round(time.Millisecond))
	slices.Sort(boxes)
	if !slices.Equal(done.GetGivenUp(), boxes) || len(done.GetUndecided()) > 0 {
		t.Errorf("it should give up %v, and says %v", boxes, done)
	}
	for _, id := range boxes {
		d.await(id, failed)
		if code := d.errorCode(id); code != "CONTAINER_MISSING" {
			t.Errorf("%s failed with %s", id, code)
		}
	}
	d.sh(other, "true")
	for _, id := range append(boxes, other) {
		d.remove(id)
	}
}

func (d *daemon) readyz() string {
	d.Helper()
	return d.get("/readyz")
}

// get is what the daemon's HTTP port answers, or why it does not.
func (d *daemon) get(path string) string {
	d.Helper()
	resp, err := http.Get("http://" + d.http + path)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}
