//go:build docker

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// cut truncates the database anywhere in what was ever used of it and returns what is left.
func (d *daemon) cut() string {
	d.Helper()
	whole := bytes.TrimRight([]byte(d.read(d.data(theDatabase))), "\x00")
	left := whole[:rand.IntN(len(whole))]
	if err := os.Truncate(d.data(theDatabase), int64(len(left))); err != nil {
		d.Fatal(err)
	}
	return string(left)
}

// cutLog takes the end of the log away: its last transactions, but at most half of it.
func (d *daemon) cutLog() {
	d.Helper()
	d.cutLogAt(func(size int) int { return size - 1 - rand.IntN(size/2) })
}

// cutMark takes the mark at the end of the log away: all transactions are there, and it is not complete.
func (d *daemon) cutMark() { d.Helper(); d.cutLogAt(func(size int) int { return size - 1 }) }

func (d *daemon) cutLogAt(at func(size int) int) {
	d.Helper()
	for _, path := range must(filepath.Glob(d.data("log/segment-*")))(d) {
		if err := os.Truncate(path, int64(at(len(d.read(path))))); err != nil {
			d.Fatal(err)
		}
	}
}

// Without an engine and without the log no call answers NOT_FOUND.
func TestARebuildWaitsForTheEngine(t *testing.T) {
	t.Parallel()
	sock := filepath.Join(must(os.MkdirTemp("", "agbox-e2e-sock-"))(t), "d.sock")
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(sock)) })
	stop := forward(t, sock, engineSocket())
	d := newDaemon(t, "unix://"+sock, "")
	d.host = "" // behind the socket is the engine that is there
	filed, unfiled := d.create(nil), d.create(nil)
	d.await(filed, ready)
	d.await(unfiled, ready)
	was := d.viewed(unfiled)
	d.killLogged()
	stop()
	d.lose(theDatabase, theLog)
	if out, err := d.command("rehydrate", "--dry-run").CombinedOutput(); err == nil || bytes.Count(out, []byte("\n")) != 1 {
		t.Errorf("a dry run without an engine: %v, %s", err, out)
	}
	d.host = "unix://" + sock
	d.start()
	d.host = ""
	for name, call := range map[string]func() error{
		"one that may be there": func() error {
			_, err := d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: unfiled})
			return err
		},
		"a create": func() error {
			_, err := d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: baseImage}})
			return err
		},
		"an exec": func() error {
			_, err := d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: filed, Command: []string{"true"}})
			return err
		},
	} {
		if err := call(); !isCode(err, codes.Unavailable) || !strings.Contains(err.Error(), "being rebuilt") {
			t.Errorf("%s: %v", name, err)
		}
	}
	forward(t, sock, engineSocket())
	d.eventually("the other one comes back", func() error {
		_, err := d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: unfiled})
		return err
	})
	d.sameAfter("later", was, guessed(""))
	d.eventually("execs are taken", func() error {
		_, err := d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: filed, Command: []string{"true"}})
		return err
	})
	d.sh(unfiled, "true")
	d.remove(filed)
	d.remove(unfiled)
}

// TestAKilledRebuildIsRepeatable: mostly the database is lost again, and sometimes the end of its log too.
func TestAKilledRebuildIsRepeatable(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	ids := map[string]view{}
	for i := range 4 {
		id := d.named(fmt.Sprintf("box-%d", i), &agboxv1.CreateSpec{Labels: map[string]string{"n": fmt.Sprint(i)}})
		d.await(id, ready)
		e := d.exec(id, "sh", "-c", "echo said; exit 4")
		d.ended(e.GetExecId())
		ids[id] = d.viewed(id, e.GetExecId())
	}
	for i := range 10 {
		d.kill()
		if i%3 != 2 { // otherwise the new one goes on
			_ = os.Remove(d.data(theDatabase))
		}
		if i%4 == 1 {
			d.cutLog()
		}
		d.log = &logFile{}
		d.launch()
		time.Sleep(rand.N(600 * time.Millisecond)) // the moment of death is what is random here
	}
	d.kill()
	_ = os.Remove(d.data(theDatabase))
	d.cutLog()
	d.start()
	list := must(d.ListSandboxes(d.ctx(), &agboxv1.ListSandboxesRequest{}))(t).GetSandboxes()
	if len(list) != len(ids) {
		t.Errorf("%d sandboxes, want %d: %v", len(list), len(ids), list)
	}
	for id, was := range ids {
		d.sameAfter("at last", was, guessed(""))
		d.sh(id, "true")
		d.remove(id)
	}
}

// A full disk delays a rebuild and spoils nothing.
func TestAFullDiskDelaysARebuild(t *testing.T) {
	t.Parallel()
	home, fill := smallDisk(t)
	d := newDaemonIn(t, home, "", "")
	id := d.create(nil)
	d.await(id, ready)
	was := d.viewed(id)
	d.killLogged()
	kept := d.cut()
	_ = exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=4k").Run() // until the disk is full
	for range 2 {
		if out, err := d.command().CombinedOutput(); err == nil || !strings.Contains(string(out), "no space left") {
			t.Errorf("on a full disk: %v, %s", err, out)
		}
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.sameAsBefore("with space again", was)
	if asides := must(filepath.Glob(d.data("ids.db.damaged-*")))(t); len(asides) != 1 || d.read(asides[0]) != kept {
		t.Errorf("kept are %v", asides)
	}
	d.remove(id)
}

// The end of the engine fails no sandbox, also not when the database went with it, or its log too. Without the log, who was still able to
// heed the TERM of the next engine looks like one that was stopped: it is not run, and nothing of it is lost.
func TestContainersEndedByTheEnginesDeathAreNoFailureAfterARebuild(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	d := newDaemon(t, e.Host(), "")
	heeds, halted := d.create(nil), d.create(nil)
	deaf := d.create(&agboxv1.CreateSpec{Command: []string{"sh", "-c", `trap "" TERM; while :; do sleep 1; done`}})
	all := []string{heeds, halted, deaf}
	for _, id := range all {
		d.await(id, ready)
	}
	d.halt(halted)
	d.sh(heeds, "echo kept >/workspace/note")
	restarted := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			d.eventually("restarted", func() error {
				if events := d.retained(id); !strings.HasSuffix(events, "RESTARTED") {
					return fmt.Errorf("%s: %s", events, d.sandbox(id).GetStatusMessage())
				}
				return nil
			})
			d.await(id, ready)
		}
	}
	die := func(lost ...string) {
		t.Helper()
		d.killLogged()
		e.Kill()
		d.lose(lost...)
		e.Start()
		d.start()
	}
	d.keepsEnd(halted)
	die(theDatabase)
	restarted(heeds, deaf)
	if s := d.state(halted); s != stopped {
		t.Errorf("the stopped one is %s", s)
	}
	die(theDatabase, theLog)
	restarted(deaf)
	for _, id := range []string{heeds, halted} {
		if s, guessed := d.state(id), d.sandbox(id).GetRehydrated().GetDefaulted(); s != stopped || !slices.Contains(guessed, "state") {
			t.Errorf("it is %s, guessed are %v", s, guessed)
		}
	}
	d.resume(heeds)
	if got := d.sh(heeds, "cat /workspace/note"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
	for _, id := range all {
		d.remove(id)
	}
}

// keepsEnd waits until the engine has the end of a sandbox's primary on disk, which it writes after it has answered its clients.
// Without the file the next engine process reports another exit code.
func (d *daemon) keepsEnd(id string) {
	d.Helper()
	root := strings.TrimSpace(d.docker("info", "-f", "{{.DockerRootDir}}"))
	container := strings.TrimSpace(d.docker("inspect", "-f", "{{.Id}}", naming.Primary(id)))
	d.eventually("the engine has the end on disk", func() error {
		var on struct{ State struct{ Running bool } }
		if err := json.Unmarshal([]byte(d.read(filepath.Join(root, "containers", container, "config.v2.json"))), &on); err != nil {
			return err
		}
		if on.State.Running {
			return errors.New("on disk it runs")
		}
		return nil
	})
}

// retained are the types of the events from the rebuild on.
func (d *daemon) retained(id string) string {
	d.Helper()
	last := d.sandbox(id).GetLastEventSequence()
	stream := must(d.SubscribeSandboxEvents(d.ctx(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id}))(d)
	var names []string
	for {
		e := must(stream.Recv())(d)
		names = append(names, strings.TrimPrefix(e.GetEventType().String(), "SANDBOX_"))
		if e.GetSequence() >= last {
			return strings.Join(names, " ")
		}
	}
}
