package shim

import (
	"os"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// TestAnExhaustedQuotaDropsOutput: that of running commands, and of commands started later; an agent's output is kept.
func TestAnExhaustedQuotaDropsOutput(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	wait := "echo before; while ! test -e " + b.paths.Ctl + "/go; do sleep 0.02; done; echo after; exit 3"
	drop, kill, agent := b.sh(wait), b.sh(wait), b.agent(wait)
	drop.LogLimitAction, kill.LogLimitAction = execjournal.LogLimitDrop, execjournal.LogLimitKill
	all := []execjournal.Request{b.start(drop), b.start(kill), b.start(agent)}
	for _, r := range all {
		b.says(r, "before\n")
	}
	must(t, b.dir.SetFull(sandbox, true))
	later := b.sh("echo later")
	later.LogLimitAction = execjournal.LogLimitDrop
	if j := b.ended(b.start(later)); j.ExitCode != 0 || j.StdoutDroppedBytes != 6 {
		t.Errorf("later: %+v", j)
	}
	if out, _ := b.logs(later); out != execjournal.DroppedMarker(0) {
		t.Errorf("later: %q", out)
	}
	must(t, os.WriteFile(b.paths.Ctl+"/go", nil, 0o644))
	if j := b.ended(drop); j.ExitCode != 3 || j.StdoutDroppedBytes != 6 || j.LogLimit {
		t.Errorf("drop: %+v", j)
	}
	if out, _ := b.logs(drop); out != "before\n"+execjournal.DroppedMarker(7) {
		t.Errorf("drop: %q", out)
	}
	if j := b.ended(kill); !j.LogLimit {
		t.Errorf("kill: %+v", j)
	}
	if j := b.ended(agent); j.ExitCode != 3 || j.StdoutDroppedBytes != 0 {
		t.Errorf("agent: %+v", j)
	}
	if out, _ := b.logs(agent); !strings.HasSuffix(out, "before\nafter\n") {
		t.Errorf("agent: %q", out)
	}
	must(t, b.dir.SetFull(sandbox, false))
	if j := b.ended(b.start(b.sh("echo again"))); j.StdoutDroppedBytes != 0 || j.StdoutBytes != 6 {
		t.Errorf("again: %+v", j)
	}
}
