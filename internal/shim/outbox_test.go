package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// TestAnOutboxEndsAtItsLimit: lines up to the limit are kept, programs get an error, and the agent continues and has its own end.
func TestAnOutboxEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	b := newBox(t).boot()
	r := b.agent(strings.ReplaceAll(`SHIM status first || exit 1
		head -c 300000 /dev/zero | tr '\0' x > $OUTBOX
		while SHIM status more; do sleep 0.02; done
		echo on; exit 3`, "SHIM", self))
	r.OutboxLimitBytes = 100_000
	r.Env["OUTBOX"] = filepath.Join(b.paths.Out, execjournal.AgentsDir, execjournal.OutboxName(r.ExecID))
	if j := b.ended(b.start(r)); j.ExitCode != 3 || j.LogLimit {
		t.Errorf("%+v", j)
	}
	if out, errOut := b.logs(r); out != "on\n" || !strings.Contains(errOut, "the sandbox has used up what it may store") {
		t.Errorf("%q, %q", out, errOut)
	}
	words := b.read(filepath.Join(b.paths.Out, execjournal.AgentsDir, execjournal.WordsName(r.ExecID)))
	if !strings.HasPrefix(words, "\n"+`{"type":"status","text":"first"}`+"\nxxx") || len(words) != 100_000 {
		t.Errorf("%d bytes: %.60q", len(words), words)
	}
}

// TestAnExhaustedQuotaClosesOutboxes: those of running agents, and of agents started later.
func TestAnExhaustedQuotaClosesOutboxes(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	b := newBox(t).boot()
	r := b.agent(strings.ReplaceAll(`SHIM status first && echo before
		while SHIM status more 2>&-; do sleep 0.02; done; echo after`, "SHIM", self))
	b.says(b.start(r), "before\n")
	must(t, b.dir.SetFull(sandbox, true))
	b.ended(r)
	later := b.agent(self + ` status later; echo $?`)
	b.ended(b.start(later))
	if out, errOut := b.logs(later); out != "1\n" || !strings.Contains(errOut, "the sandbox has used up what it may store") {
		t.Errorf("later: %q, %q", out, errOut)
	}
	if got := b.outbox(later); len(got) != 0 {
		t.Errorf("later: %q", got)
	}
	if out, _ := b.logs(r); out != "before\nafter\n" || len(b.outbox(r)) == 0 {
		t.Errorf("%q, %q", out, b.outbox(r))
	}
}

// TestTheLastDataInTheOutboxIsStored: data in the FIFO when the command exits, or when the last process that outlives it exits, is stored in the file.
func TestTheLastDataInTheOutboxIsStored(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	for _, script := range []string{
		`echo mine > $OUTBOX`, `(setsid sh -c 'sleep 0.2; echo mine > $OUTBOX' >/dev/null 2>&1 </dev/null) & exit 0`, `echo mine > $OUTBOX; kill -9 $$`,
	} {
		r := b.agent(script)
		r.Env["OUTBOX"] = filepath.Join(b.paths.Out, execjournal.AgentsDir, execjournal.OutboxName(r.ExecID))
		b.ended(b.start(r))
		b.until("the last word", func() bool { return strings.Join(b.outbox(r), " ") == "mine" })
	}
}
