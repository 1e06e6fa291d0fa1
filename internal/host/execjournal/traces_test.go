package execjournal

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agbox/agbox/internal/execid"
)

func tracesOf(t *testing.T, d *Dir) (map[string]Trace, int) {
	t.Helper()
	list, unread, err := d.Traces("box1")
	must(t, err)
	byID := map[string]Trace{}
	for i, one := range list {
		if i > 0 && list[i-1].ExecID >= one.ExecID {
			t.Errorf("%s does not follow %s", one.ExecID, list[i-1].ExecID)
		}
		byID[one.ExecID] = one
	}
	return byID, unread
}

func TestTracesShowRequestsAndJournals(t *testing.T) {
	d, p := newDir(t)
	other := func(id, state string) string { return strings.Replace(journal(state, testNonce), "e1", id, 1) }
	for _, id := range []string{"e1", "waiting"} {
		must(t, d.Start("box1", Request{ExecID: id, Nonce: testNonce, Command: []string{"true"}}))
	}
	must(t, d.Cancel("box1", "waiting", testNonce))
	must(t, d.Cancel("box1", "nobody", testNonce))
	must(t, d.Release("box1"))
	write(t, p.Logs, "e1.journal", journal("started", testNonce))
	hold(t, p.Logs)
	write(t, p.Logs, "ended.journal", other("ended", "ended"))
	write(t, p.Logs, "lost.journal", other("lost", "started"))
	write(t, p.Logs, "_hook.0.journal", other("_hook.0", "ended"))
	write(t, p.Logs, "ended.stdout.log", "x")

	got, unread := tracesOf(t, d)
	if len(got) != 5 || unread != 0 {
		t.Fatalf("%d traces, %d unread: %v", len(got), unread, got)
	}
	if e := got["e1"]; !e.Running || e.Request == nil || e.Journal.State != StateStarted || e.Cancelled {
		t.Errorf("the running one: %+v", e)
	}
	if e := got["waiting"]; e.Request == nil || e.Request.Nonce != testNonce || e.Journal != nil || !e.Cancelled {
		t.Errorf("the waiting one: %+v", e)
	}
	if e := got["ended"]; e.Running || e.Request != nil || e.Journal.ExitCode != 3 {
		t.Errorf("the ended one: %+v", e)
	}
	if e := got["lost"]; e.Running || e.Journal.State != StateStarted {
		t.Errorf("the lost one: %+v", e)
	}
}

// Hostile entries in the log directory are not followed, waited for, or attributed to another exec.
func TestTracesOfAHostileDirectory(t *testing.T) {
	d, p := newDir(t)
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte(journal("ended", testNonce)), 0o600))
	must(t, os.Symlink(secret, filepath.Join(p.Logs, "e1.journal")))
	must(t, syscall.Mkfifo(filepath.Join(p.Logs, "e2.journal"), 0o644))
	must(t, os.Mkdir(filepath.Join(p.Logs, "e3.journal"), 0o755))
	write(t, p.Logs, "e4.journal", journal("ended", testNonce)) // of e1
	write(t, p.Logs, "e5.journal", "")
	must(t, os.Truncate(filepath.Join(p.Logs, "e5.journal"), 1<<40))
	write(t, p.Logs, ".journal", "")
	write(t, p.Logs, strings.Repeat("x", 240)+".journal", "")
	if got, unread := tracesOf(t, d); len(got) != 0 || unread != 5 {
		t.Errorf("%d unread, %v", unread, got)
	}
	must(t, os.RemoveAll(p.Logs))
	must(t, os.Symlink("/etc", p.Logs))
	if _, _, err := d.Traces("box1"); err == nil {
		t.Error("a log directory that is a link was read")
	}
	if list, _, err := d.Traces("never"); err != nil || len(list) != 0 {
		t.Errorf("no directory: %v, %v", list, err)
	}
}

// The journal of the main process is not read, whatever it contains.
func TestTracesSkipTheMainProcess(t *testing.T) {
	d, p := newDir(t)
	write(t, p.Logs, JournalName(execid.Main), "{")
	write(t, p.Logs, "e1.journal", "{")
	if got, unread := tracesOf(t, d); len(got) != 0 || unread != 1 {
		t.Errorf("%d unread, %v", unread, got)
	}
}
