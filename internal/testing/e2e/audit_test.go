//go:build docker

package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/audit"
	"github.com/agbox/agbox/internal/host/naming"
)

// audit ends every test that has a daemon: whatever was killed in it, records, containers and files must fit the crash contract.
func (d *daemon) audit() {
	d.Helper()
	if d.Failed() || d.Skipped() || d.unaudited != "" || !d.alive() {
		return
	}
	data := filepath.Join(d.home, "data/agents-sandbox")
	site := audit.Site{
		RunRoot: filepath.Join(data, "s"), LogRoot: filepath.Join(data, "exec-logs"), TxLog: filepath.Join(data, "log"),
		Engine: d.host, ScratchDir: d.home,
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	r, err := audit.Run(ctx, site, audit.FromDaemon(agboxv1.NewAdminServiceClient(d.conn)),
		audit.Options{Patience: 20 * time.Second, Interval: 500 * time.Millisecond})
	if err != nil {
		d.Errorf("the audit could not look: %v", err)
		return
	}
	if !r.OK() {
		var b strings.Builder
		r.Write(&b)
		d.Errorf("the audit found violations of the crash contract:\n%s", b.String())
	}
}

// alive reports whether the daemon runs.
func (d *daemon) alive() bool {
	if d.cmd == nil || d.conn == nil {
		return false
	}
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

// TestTheAuditFindsWhatWasPlantedInTheEngine: the command, beside a daemon that runs.
func TestTheAuditFindsWhatWasPlantedInTheEngine(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	d.sh(id, "echo hello")
	run := func() (string, int) {
		cmd := d.command("audit", "--patience", "2s")
		out, _ := cmd.CombinedOutput() // the exit code says it
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := run(); code != 0 || !strings.Contains(out, "0 violations") || !strings.Contains(out, "1 sandboxes") {
		t.Errorf("nothing is wrong: exit code %d\n%s", code, out)
	}
	instance := strings.TrimSpace(d.read(filepath.Join(d.home, "data/agents-sandbox/instance")))
	planted := d.docker("create", "--label", naming.Instance+"="+instance, "--label", naming.SandboxID+"=alien",
		"--label", naming.Component+"="+naming.ComponentPrimary, baseImage)
	t.Cleanup(func() { d.docker("rm", "-f", strings.TrimSpace(planted)) })
	if out, code := run(); code != 1 || !strings.Contains(out, "VIOLATION I19 container") || !strings.Contains(out, `sandbox "alien" is not on record`) {
		t.Errorf("a container of nobody: exit code %d\n%s", code, out)
	}
	d.unaudited = "the container without a record is still there"
}
