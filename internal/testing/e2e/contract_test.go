//go:build docker

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// The operations of docs/crash-contract.md that no scene of TestKilledAtEveryFailpoint passes: the CLI and others make them of several
// calls, or they only read.

// noSweep has a daemon list garbage that it would remove.
const noSweep = "[runtime]\norphan_sweep = \"dry-run\"\n"

// leaves makes what a daemon that was killed might leave behind of a deleted sandbox: its logs, and n containers with a number in their names.
func (d *daemon) leaves(id string, number, n int) {
	d.Helper()
	if err := os.MkdirAll(filepath.Join(d.home, "data/agents-sandbox/exec-logs", id), 0o700); err != nil {
		d.Fatal(err)
	}
	instance := strings.TrimSpace(d.read(filepath.Join(d.home, "data/agents-sandbox/instance")))
	for i := range n {
		if d.docker("create", "--name", fmt.Sprintf("%s-left-%d-%d", naming.Primary(id), number, i), "--label", naming.Instance+"="+instance,
			"--label", naming.SandboxID+"="+id, "--label", naming.Component+"="+naming.ComponentService, baseImage, "true") == "" {
			d.Fatal("no container was made")
		}
	}
}

// collects removes all garbage, and returns how much it was.
func (d *daemon) collects() (n int) {
	d.Helper()
	d.eventually("the engine answers", func() error {
		_, err := d.admin().CollectGarbage(d.ctx(), &agboxv1.CollectGarbageRequest{DryRun: true})
		return err
	})
	for _, item := range must(d.admin().CollectGarbage(d.ctx(), &agboxv1.CollectGarbageRequest{}))(d).GetItems() {
		if n++; !item.GetRemoved() {
			d.Errorf("%v", item)
		}
	}
	if left := must(d.admin().CollectGarbage(d.ctx(), &agboxv1.CollectGarbageRequest{DryRun: true}))(d).GetItems(); len(left) > 0 {
		d.Errorf("left: %v", left)
	}
	return n
}

// killsDuring kills the daemon and starts it again during a call of the CLI, in each round later, until a call ends before. The CLI may wait
// for the next daemon, or give up. each prepares a round and returns the call.
func (d *daemon) killsDuring(each func(round int) []string) (kills int) {
	d.Helper()
	for delay := 5 * time.Millisecond; ; delay += delay/2 + 5*time.Millisecond {
		cmd := exec.Command(filepath.Join(binaries, "agbox"), each(kills)...)
		cmd.Env = append(cmd.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run")
		out, done := []byte(nil), make(chan struct{})
		go func() { defer close(done); out, _ = cmd.CombinedOutput() }()
		select {
		case <-done:
			if !cmd.ProcessState.Success() {
				d.Errorf("%v: %s", cmd.Args, out)
			}
			return kills
		case <-time.After(delay): // the moment is what varies
		}
		kills++
		d.restart()
		select {
		case <-done:
		case <-time.After(2 * patience):
			_ = cmd.Process.Kill()
			<-done
			d.Fatalf("%v does not end: %s", cmd.Args, out)
		}
	}
}

func TestKilledDuringGarbageCollection(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", noSweep)
	former, lives := d.create(nil), d.create(nil)
	d.await(former, ready)
	d.await(lives, ready)
	x := d.exec(lives, "sh", "-c", "until test -e /workspace/go; do sleep 0.1; done; exit 4").GetExecId()
	d.remove(former)
	kills := d.killsDuring(func(round int) []string {
		d.leaves(former, round, 4)
		return []string{"gc"}
	})
	t.Logf("%d kills", kills)
	d.collects()
	if held := d.held(former); held != "" {
		t.Errorf("there is still %s", held)
	}
	d.sh(lives, "touch /workspace/go")
	if st := d.ended(x); st.GetExitCode() != 4 {
		t.Errorf("what is no garbage: %v", st)
	}
	d.remove(lives)
}

// TestKilledDuringBackup: the records are as before, and at most a temporary file is left beside a backup that is complete.
func TestKilledDuringBackup(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	dir := t.TempDir()
	file := filepath.Join(dir, "backup")
	id := d.create(nil)
	d.await(id, ready)
	d.ended(d.exec(id, "sh", "-c", "head -c 20000000 /dev/zero").GetExecId()) // a copy with logs takes its time
	before := d.asOf(id)
	t.Logf("%d kills", d.killsDuring(func(int) []string { return []string{"backup", "--with-logs", "--force", file} }))
	if out := d.agbox("backup", "verify", file); !strings.Contains(out, "is complete") {
		t.Error(out)
	}
	d.sameAs(id, before)
	entries := must(os.ReadDir(dir))(t)
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		ok, err := filepath.Match("backup.*.tmp", e.Name())
		return err != nil || !ok && e.Name() != "backup"
	}) {
		t.Errorf("left: %v", entries)
	}
	d.remove(id)
}

// TestKilledDuringReplace kills the daemon while the CLI deletes a sandbox and creates its successor: apply again completes it.
func TestKilledDuringReplace(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	manifest := filepath.Join(t.TempDir(), "spec.yaml")
	users := []string{"root", "nobody"}
	call := func(round int) []string {
		text := fmt.Sprintf("apiVersion: agbox/v1\nkind: Sandbox\nmetadata: {name: home}\nspec: {image: %q, user: %s}\n", baseImage, users[round%2])
		if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"apply", "--replace", "-f", manifest, "--wait"}
	}
	kills := d.killsDuring(call)
	t.Logf("%d kills", kills)
	d.agbox(call(1)...)
	list := must(d.ListSandboxes(d.ctx(), &agboxv1.ListSandboxesRequest{}))(t).GetSandboxes()
	if len(list) != 1 || list[0].GetName() != "home" {
		t.Fatalf("there are %v", list)
	}
	id := list[0].GetSandboxId()
	d.await(id, ready)
	if got := d.sh(id, "id -un"); got != "nobody\n" {
		t.Errorf("got %q", got)
	}
	d.remove(id)
}

// TestWithoutAnEngine: a deadline that passes meanwhile is acted on when the engine is back, and readers do not notice.
func TestWithoutAnEngine(t *testing.T) {
	t.Parallel()
	e := newEngine(t, "--live-restore")
	d := newDaemon(t, e.Host(), "")
	id, halts := d.create(nil), d.create(nil)
	d.await(id, ready)
	d.await(halts, ready)
	e.Kill()
	must(d.SetSandboxTimeout(d.ctx(), &agboxv1.SetSandboxTimeoutRequest{
		SandboxId: id, When: &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: seconds(1)},
	}))(t)
	stream := must(d.SubscribeSandboxEvents(d.ctx(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: halts}))(t)
	d.stopBox(halts)
	awaitEvent(t, stream, agboxv1.EventType_SANDBOX_STOP_REQUESTED)
	file := filepath.Join(t.TempDir(), "backup")
	d.agbox("backup", file)
	if out := d.agbox("backup", "verify", file); !strings.Contains(out, "is complete") {
		t.Error(out)
	}
	due := d.sandbox(id).GetDeadlineAt().AsTime()
	time.Sleep(time.Until(due))
	back := time.Now()
	e.Start()
	d.wantActedOn(id, "stop", due, patience)
	d.await(halts, stopped)
	for _, box := range []string{id, halts} {
		if at := d.event(box, agboxv1.EventType_SANDBOX_STOPPED, "").GetOccurredAt().AsTime(); at.Before(back) {
			t.Errorf("%s is stopped on record %v before an engine was there to stop it", box, back.Sub(at))
		}
		d.remove(box)
	}
}

// awaitEvent reads a stream until an event of that type.
func awaitEvent(t *testing.T, stream agboxv1.SandboxService_SubscribeSandboxEventsClient, want agboxv1.EventType) {
	t.Helper()
	for must(stream.Recv())(t).GetEventType() != want {
	}
}

// TestWithoutAContainer: a container that is removed by hand is noticed by nothing that only reads the records.
func TestWithoutAContainer(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id, other := d.create(nil), d.create(nil)
	d.await(id, ready)
	d.await(other, ready)
	stream := must(d.SubscribeSandboxEvents(d.ctx(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id}))(t)
	d.docker("rm", "-f", naming.Primary(id))
	must(d.SetSandboxTimeout(d.ctx(), &agboxv1.SetSandboxTimeoutRequest{
		SandboxId: id, When: &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: seconds(3600)},
	}))(t)
	file := filepath.Join(t.TempDir(), "backup")
	d.agbox("backup", file)
	awaitEvent(t, stream, agboxv1.EventType_SANDBOX_FAILED)
	d.kill()
	if out, err := d.command("restore", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d.start()
	d.failsWith(id, "CONTAINER_MISSING")
	d.remove(id)
	d.remove(other)
}
