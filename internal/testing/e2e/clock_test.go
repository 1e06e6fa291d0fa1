//go:build docker

package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// withFaults is a daemon of the build that has faults, such as a clock that a file sets (hostclock.EnvFile): never the host's.
func withFaults(t *testing.T) *daemon {
	t.Helper()
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.program = faultyDaemon(t)
	d.env = append(d.env, "AGBOX_FAULT_CLOCK="+filepath.Join(d.home, "clock"))
	return d
}

// nothingHappens is long enough for readings of the clock and a pass of every sandbox. That no deadline acts in it is no event to wait for.
const nothingHappens = 2 * time.Second

// setClock sets the clock of the daemon, see hostclock.Change.
func (d *daemon) setClock(change string) {
	d.Helper()
	path := filepath.Join(d.home, "clock")
	if err := os.WriteFile(path+".new", []byte(change), 0o600); err != nil {
		d.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		d.Fatal(err)
	}
}

// The clock is two days ahead for some seconds, in which the daemon is killed; then the host sleeps for a weekend.
func TestAJumpOfTheClockDeletesNothing(t *testing.T) {
	t.Parallel()
	d := withFaults(t)
	d.http = freeAddress(t)
	d.conf = "[runtime]\nclock_grace = \"1h\"\ncleanup_ttl = \"24h\"\nidle_ttl = \"24h\"\n[pause]\nfreeze_duration = \"24h\"\n"
	d.start()
	halted, frozen, idle, busy := d.create(nil), d.create(nil), d.create(nil), d.create(timed("delete", 24*time.Hour))
	for _, id := range []string{halted, frozen, idle, busy} {
		d.await(id, ready)
	}
	counts := d.exec(frozen, "sh", "-c", "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i; sleep 0.1; done")
	works := d.exec(busy, "sh", "-c", "while [ ! -e /tmp/done ]; do sleep 0.1; done; echo went on")
	d.halt(halted)
	d.freeze(frozen)
	due := d.sandbox(busy).GetDeadlineAt().AsTime()
	intact := func() {
		t.Helper()
		for id, want := range map[string]agboxv1.SandboxState{halted: stopped, frozen: paused, idle: ready, busy: ready} {
			if got := d.state(id); got != want {
				t.Errorf("%s is %s, want %s", id, got, want)
			}
		}
		if sb := d.sandbox(frozen); sb.GetDemotedAt() != nil {
			t.Errorf("the frozen one lost its memory at %v", sb.GetDemotedAt().AsTime())
		}
	}
	d.wantPage("/readyz", http.StatusOK, "[+]clock ok")

	d.setClock(`{"step": "48h"}`)
	d.wantPage("/readyz", http.StatusOK, "[!]clock: the host's clock jumped by 48h0m0s; deadlines wait until ")
	d.wantPage("/metrics", http.StatusOK, `agboxd_clock_jumps_total{kind="forward"} 1`, `agboxd_clock_jumps_total{kind="backward"} 0`)
	time.Sleep(nothingHappens)
	intact()
	d.restart()
	d.wantPage("/readyz", http.StatusOK, "[!]clock: the host's clock jumped by 48h0m0s; deadlines wait until ")
	time.Sleep(nothingHappens)
	intact()
	d.setClock(`{}`)
	d.wantPage("/readyz", http.StatusOK, "[+]clock ok")
	intact()

	d.setClock(`{"slept": "48h"}`)
	d.wantPage("/readyz", http.StatusOK, "[!]clock: the host slept; deadlines wait until ")
	d.wantPage("/metrics", http.StatusOK, `agboxd_clock_jumps_total{kind="suspend"} 1`, `agboxd_clock_jumps_total{kind="boot"} 0`)
	time.Sleep(nothingHappens)
	intact()
	d.resume(frozen)
	if st := d.ended(counts.GetExecId()); st.GetState() != finished {
		t.Errorf("the exec of the frozen one: %s %s", st.GetState(), st.GetError())
	}
	d.sh(busy, "touch /tmp/done")
	if st := d.ended(works.GetExecId()); st.GetState() != finished || d.read(works.GetStdoutLogPath()) != "went on\n" {
		t.Errorf("the exec of the busy one: %s %s", st.GetState(), st.GetError())
	}

	d.conf = "[runtime]\nclock_grace = \"1s\"\ncleanup_ttl = \"24h\"\nidle_ttl = \"24h\"\n"
	d.restart() // the grace is over: the clock is accepted
	d.await(halted, deleted)
	d.await(busy, deleted)
	d.wantPage("/readyz", http.StatusOK, "[+]clock ok")
	if e := d.event(busy, agboxv1.EventType_SANDBOX_DELETE_REQUESTED, ""); e.GetOccurredAt().AsTime().Before(due) {
		t.Errorf("deleted at %v, due at %v", e.GetOccurredAt().AsTime(), due)
	}
	d.remove(frozen)
	d.remove(idle)
}
