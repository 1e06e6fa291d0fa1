//go:build docker

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// The calls of docs/crash-contract.md that are made of other calls or only read the records, while the host dies, the clock jumps or the
// engine lies.

// home is a sandbox that its user replaces by apply.
type home struct {
	*daemon
	manifest string
}

func newHome(t *testing.T, d *daemon) home {
	t.Helper()
	h := home{d, filepath.Join(t.TempDir(), "spec.yaml")}
	h.writes("root")
	h.agbox("apply", "-f", h.manifest, "--wait")
	return h
}

func (h home) writes(user string) {
	h.Helper()
	text := fmt.Sprintf("apiVersion: agbox/v1\nkind: Sandbox\nmetadata: {name: home}\nspec: {image: %q, user: %s}\n", baseImage, user)
	if err := os.WriteFile(h.manifest, []byte(text), 0o600); err != nil {
		h.Fatal(err)
	}
}

func (h home) replace() []string { return []string{"apply", "--replace", "-f", h.manifest, "--wait"} }

// id returns the ID of the only sandbox with the name home.
func (h home) id() (id string) {
	h.Helper()
	for _, sb := range must(h.ListSandboxes(h.ctx(), &agboxv1.ListSandboxesRequest{}))(h).GetSandboxes() {
		if sb.GetName() != "home" {
			continue
		}
		if id != "" {
			h.Fatalf("both %s and %s have the name", id, sb.GetSandboxId())
		}
		id = sb.GetSandboxId()
	}
	return id
}

// isReplaced checks that the sandbox was replaced by one of the user, and that nothing is left of it.
func (h home) isReplaced(was, user string) {
	h.Helper()
	id := h.id()
	if id == was || id == "" {
		h.Fatalf("home was %q and is %q", was, id)
	}
	h.await(id, ready)
	if got := h.sh(id, "id -un"); got != user+"\n" {
		h.Errorf("the new sandbox runs as %q", got)
	}
	h.await(was, deleted)
	if held := h.held(was); held != "" {
		h.Errorf("of the replaced sandbox there is still %s", held)
	}
}

// TestAHostRebootCutsCallsOff: apply again replaces a sandbox, a stream goes on after its last event, and gc collects what is left.
func TestAHostRebootCutsCallsOff(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("showing the daemon another boot ID needs root")
	}
	t.Parallel()
	d := newDaemon(t, "", noSweep)
	h, ran, former := newHome(t, d), d.create(nil), d.create(nil)
	was := h.id()
	d.await(ran, ready)
	d.await(former, ready)
	d.remove(former)
	d.leaves(former, 0, 2)
	last := d.sandbox(ran).GetLastEventSequence()
	h.writes("nobody")
	call := exec.Command(filepath.Join(binaries, "agbox"), h.replace()...)
	call.Env = append(call.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run")
	if err := call.Start(); err != nil {
		t.Fatal(err)
	}
	stream := must(d.SubscribeSandboxEvents(d.ctx(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: was}))(t)
	awaitEvent(t, stream, agboxv1.EventType_SANDBOX_DELETE_REQUESTED)
	_ = call.Process.Kill() // the host dies, and the CLI with it
	_ = call.Wait()
	d.kill()
	if running := strings.Fields(d.docker("ps", "-q", "--filter", "label="+naming.Instance+"="+strings.TrimSpace(d.read(d.data("instance"))))); len(running) > 0 {
		d.docker(append([]string{"kill"}, running...)...)
	}
	d.reboot()
	d.start()

	d.agbox(h.replace()...)
	h.isReplaced(was, "nobody")
	d.await(ran, ready)
	later := must(d.SubscribeSandboxEvents(d.ctx(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: ran, FromSequence: last}))(t)
	for next := last + 1; ; next++ {
		e := must(later.Recv())(t)
		if e.GetSequence() != next {
			t.Fatalf("event %d follows %d", e.GetSequence(), next-1)
		}
		if e.GetEventType() == agboxv1.EventType_SANDBOX_RESTARTED {
			break
		}
	}
	if n := d.collects(); n < 3 {
		t.Errorf("%d leftovers were removed, want two containers and a directory", n)
	}
	if held := d.held(former); held != "" {
		t.Errorf("there is still %s", held)
	}
	d.remove(h.id())
	d.remove(ran)
}

// TestCallsWithAWrongClock: apply, backup, restore and gc do what they do with the right clock.
func TestCallsWithAWrongClock(t *testing.T) {
	t.Parallel()
	d := withFaults(t)
	d.conf = noSweep
	d.start()
	h, id, former := newHome(t, d), d.create(nil), d.create(nil)
	d.await(id, ready)
	d.await(former, ready)
	d.remove(former)
	for round, step := range []string{"48h", "-48h"} {
		d.setClock(fmt.Sprintf(`{"step": %q}`, step))
		user := []string{"nobody", "root"}[round]
		was := h.id()
		h.writes(user)
		d.agbox(h.replace()...)
		h.isReplaced(was, user)
		d.leaves(former, round, 2)
		if n := d.collects(); n < 3 {
			t.Errorf("with the clock at %s gc removed %d leftovers, want two containers and a directory", step, n)
		}
		d.backsUp(id)
		d.backsUp(h.id())
	}
	d.setClock(`{}`)
	for _, box := range []string{id, h.id()} {
		if s := d.state(box); s != ready {
			t.Errorf("%s is %s", box, s)
		}
		d.remove(box)
	}
}

// backsUp makes a backup, verifies and restores it: the sandbox is as before.
func (d *daemon) backsUp(id string) {
	d.Helper()
	file := filepath.Join(d.TempDir(), "backup")
	before := d.asOf(id)
	d.agbox("backup", file)
	if out := d.agbox("backup", "verify", file); !strings.Contains(out, "is complete") {
		d.Error(out)
	}
	d.kill()
	if out, err := d.command("restore", file).CombinedOutput(); err != nil {
		d.Fatalf("restore: %v: %s", err, out)
	}
	d.start()
	d.sameAs(id, before)
}

// TestCallsWhileTheEngineLies: with empty lists a sandbox is replaced at the latest when the engine tells the truth, and what only reads the
// records does not notice.
func TestCallsWhileTheEngineLies(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	d := newDaemon(t, l.host, "[runtime]\nresync_interval = \"1s\"\n")
	h, id := newHome(t, d), d.create(nil)
	d.await(id, ready)
	l.tell(nothing("/containers/json", "/networks"))
	before := d.types(id)
	d.backsUp(id)
	stream := must(d.SubscribeSandboxEvents(d.ctx(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id}))(t)
	for range strings.Fields(before) {
		must(stream.Recv())(t)
	}
	was := h.id()
	h.writes("nobody")
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	call := exec.CommandContext(ctx, filepath.Join(binaries, "agbox"), h.replace()...)
	call.Env = append(call.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run")
	done := make(chan error, 1)
	go func() {
		out, err := call.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		done <- err
	}()
	time.Sleep(14 * time.Second) // longer than the two looks of a verdict, whose absence is no event to wait for
	l.truth()
	if err := <-done; err != nil {
		t.Error(err)
	}
	h.isReplaced(was, "nobody")
	if now := d.types(id); now != before {
		t.Errorf("the other had the events %s, and has %s", before, now)
	}
	d.sh(id, "true")
	d.remove(h.id())
	d.remove(id)
}
