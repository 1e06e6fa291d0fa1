//go:build docker

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/disklimit"
	"github.com/agbox/agbox/internal/host/naming"
)

// TestASandboxOverItsDiskLimitIsStoppedAndKeepsItsFiles on an engine that does not hold the limit, over a death of the daemon.
func TestASandboxOverItsDiskLimitIsStoppedAndKeepsItsFiles(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	if driver := d.docker("info", "--format", "{{.Driver}}, {{.DriverStatus}}"); !strings.HasPrefix(driver, "overlay") || strings.Contains(driver, "xfs") {
		t.Skipf("the engine may hold limits: %s", driver)
	}
	warned := func(sb *agboxv1.SandboxHandle, text string) {
		t.Helper()
		if !slices.ContainsFunc(sb.GetWarnings(), func(w string) bool { return strings.Contains(w, text) }) {
			t.Errorf("no warning has %q: %q", text, sb.GetWarnings())
		}
	}
	other := d.create(&agboxv1.CreateSpec{DiskLimit: "256MiB", User: "root"})
	d.await(other, ready) // the engine has answered
	sb := must(d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: baseImage, DiskLimit: "64MiB", User: "root"}}))(t).GetSandbox()
	warned(sb, "disk_limit is watched")
	id := sb.GetSandboxId()
	d.await(id, ready)
	x := d.exec(id, "sleep", "1000")
	d.started(x)
	d.kill() // nothing measures while it is filled
	const fill = "for f in /root/a /tmp/b; do head -c 52428800 /dev/urandom >$f || exit 1; done; sha256sum /root/a /tmp/b"
	d.docker("exec", naming.Primary(other), "sh", "-c", fill)
	sums := d.docker("exec", naming.Primary(id), "sh", "-c", fill)
	d.start()
	d.await(id, stopped)
	if st := d.ended(x.GetExecId()); st.GetState() != agboxv1.ExecState_EXEC_STATE_CANCELLED {
		t.Errorf("the exec that ran: %v", st)
	}
	requested := d.event(id, agboxv1.EventType_SANDBOX_STOP_REQUESTED, "").GetSandboxPhase()
	if requested.GetReason() != "disk_limit" || requested.GetErrorMessage() == "" {
		t.Errorf("the stop: %v", requested)
	}
	warned(d.sandbox(id), "its files are kept")

	d.resume(id)
	d.await(id, ready)
	if got := d.sh(id, "sha256sum /root/a /tmp/b && rm /root/a /tmp/b"); got != sums {
		t.Errorf("its files are %s, and were %s", got, sums)
	}
	time.Sleep(2 * disklimit.Every) // nothing may happen within
	d.eventually("it is measured", func() error {
		if w := fmt.Sprint(d.sandbox(id).GetWarnings()); !strings.Contains(w, "it has written") {
			return fmt.Errorf("warnings: %s", w)
		}
		return nil
	})
	for _, box := range []string{id, other} {
		if s := d.state(box); s != ready {
			t.Errorf("%s is %s", naming.Primary(box), s)
		}
	}
}
