//go:build docker

package e2e

import (
	"fmt"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// A sandbox over artifacts.sandbox_max_bytes stores nothing more: output is dropped or its exec killed, as on_log_limit says, and the
// outboxes of agents close. Each log alone is below every limit, so only the quota of the sandbox stops it. No other sandbox is affected.
func TestASandboxOverItsQuotaStoresNothingMore(t *testing.T) {
	t.Parallel()
	const quota, fill, burst = 4 << 20, 2600000, 1 << 20
	d := newDaemon(t, "", fmt.Sprintf("[artifacts]\nsandbox_max_bytes = \"%d\"\n", quota))
	drops, kills, other := newCrew(d), d.create(&agboxv1.CreateSpec{OnLogLimit: "kill"}), d.create(nil)
	d.await(kills, ready)
	d.await(other, ready)
	agent := drops.hire("agent", "native", "native")
	drops.awaitAgent(agent, agentIdle)
	const verb = "run /run/agbox/bin/agbox-shim status more 2>/tmp/said; true"
	said := func() string { return d.docker("exec", naming.Primary(drops.box), "cat", "/tmp/said") } // an exec would store output
	drops.ask(agent, "before", verb)
	if got := said(); strings.TrimSpace(got) != "" {
		t.Errorf("the outbox below the quota: %q", got)
	}
	const phase = "; until [ -e /tmp/%s ]; do %s; sleep 0.1; done; "
	flood := "echo up" + fmt.Sprintf(phase, "fill", ":") + fmt.Sprintf("yes | head -c %d", fill) +
		fmt.Sprintf(phase, "burst", "echo y") + fmt.Sprintf("yes | head -c %d", burst)
	floods := map[string][]*agboxv1.CreateExecResponse{}
	for _, id := range []string{drops.box, kills} {
		floods[id] = []*agboxv1.CreateExecResponse{d.exec(id, "sh", "-c", flood), d.exec(id, "sh", "-c", flood)}
	}
	bystander := d.exec(other, "sh", "-c", "echo up"+fmt.Sprintf(phase, "burst", ":")+fmt.Sprintf("yes | head -c %d", fill))
	for _, x := range append(append(floods[drops.box], floods[kills]...), bystander) {
		d.printed(x, 1) // so each has its limit from before the flood
	}
	d.exec(drops.box, "touch", "/tmp/fill")
	d.exec(kills, "touch", "/tmp/fill")

	for _, x := range floods[kills] {
		if st := d.ended(x.GetExecId()); st.GetState() != ruined || st.GetErrorCode() != "EXEC_LOG_LIMIT" {
			t.Errorf("on_log_limit kill: %v", st)
		}
	}
	for _, x := range floods[drops.box] {
		d.eventually("the log says that it was cut", func() error {
			if log := d.read(x.GetStdoutLogPath()); !strings.HasSuffix(log, "what follows was dropped]\n") {
				return fmt.Errorf("it has %d bytes and ends in %q", len(log), log[max(0, len(log)-100):])
			}
			return nil
		})
	}
	d.sh(drops.box, "touch /tmp/burst")
	d.sh(other, "touch /tmp/burst")
	stored := 0
	for _, x := range floods[drops.box] {
		st := d.ended(x.GetExecId())
		if st.GetState() != finished || st.GetStdoutDroppedBytes() < burst {
			t.Errorf("on_log_limit drop: %v", st)
		}
		stored += len(d.read(x.GetStdoutLogPath()))
	}
	if stored < quota || stored > 2*fill+quota/8 {
		t.Errorf("%d bytes are stored with a quota of %d", stored, quota)
	}
	drops.ask(agent, "after", verb)
	if got := said(); !strings.Contains(got, "artifacts.sandbox_max_bytes") {
		t.Errorf("the outbox above the quota: %q", got)
	}
	if st := d.ended(bystander.GetExecId()); st.GetState() != finished || st.GetStdoutDroppedBytes() != 0 {
		t.Errorf("in another sandbox: %v", st)
	}
	if got := len(d.read(bystander.GetStdoutLogPath())); got != len("up\n")+fill {
		t.Errorf("in another sandbox %d bytes are stored", got)
	}
	for _, id := range []string{drops.box, kills, other} {
		d.remove(id)
	}
}
