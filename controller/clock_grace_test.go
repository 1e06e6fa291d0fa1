package controller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/apis/enum"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/store"
)

const (
	hours = 24 * time.Hour // the length of every deadline of a village
	grace = 10 * time.Minute
)

// graced sets every kind of deadline to a day, and a grace period.
func graced(c *controller.Config) {
	s := &c.Settings
	s.IdleTTL, s.CleanupTTL, s.FreezeDuration, s.StoppedGCAfter, s.EventRetention, s.ClockGrace = hours, hours, hours, hours, hours, grace
}

// village has one sandbox for each kind of deadline.
type village struct{ idle, timed, stopped, frozen, demoted, deleted string }

func (p *player) village(t *testing.T) village {
	t.Helper()
	var v village
	v.idle, v.stopped, v.frozen, v.demoted, v.deleted = p.readyBox(t), p.readyBox(t), p.readyBox(t), p.readyBox(t), p.readyBox(t)
	v.timed = p.create(t, &agboxv1.CreateSpec{Timeout: durationpb.New(hours), OnTimeout: "delete"})
	pass(time.Second)
	for id, ask := range map[string]func() (bool, error){
		v.stopped: func() (bool, error) { return p.store.RequestStop(t.Context(), v.stopped, "stop_requested") },
		v.frozen:  func() (bool, error) { return p.store.RequestPause(t.Context(), v.frozen, "pause_requested") },
		v.demoted: func() (bool, error) { return p.store.RequestPause(t.Context(), v.demoted, "pause_requested") },
		v.deleted: func() (bool, error) { return p.store.RequestDelete(t.Context(), v.deleted, "delete_requested") },
	} {
		if changed, err := ask(); !changed || err != nil {
			t.Fatalf("%s: %v, %v", id, changed, err)
		}
	}
	req := &agboxv1.CreateExecRequest{SandboxId: v.timed, ExecId: "busy", Command: []string{"sleep", "5000000", "0"}}
	if _, err := p.store.CreateExec(t.Context(), req, store.Caller{}); err != nil {
		t.Fatal(err)
	}
	pass(time.Minute)
	if changed, err := p.store.Demote(t.Context(), v.demoted); !changed || err != nil {
		t.Fatalf("demote: %v, %v", changed, err)
	}
	pass(time.Minute)
	p.wantIntact(t, v)
	return v
}

// fate returns the outcome of a sandbox in a word.
func (p *player) fate(t *testing.T, id string) string {
	t.Helper()
	sb, err := p.store.Sandbox(t.Context(), id)
	if err != nil {
		return "purged"
	}
	word := enum.Word(sb.State)
	if sb.State == paused && sb.Desired.GetDemotedAt() != 0 {
		word = "DEMOTED"
	}
	return word
}

func (p *player) fates(t *testing.T, v village) string {
	t.Helper()
	var all []string
	for _, id := range []string{v.idle, v.timed, v.stopped, v.frozen, v.demoted, v.deleted} {
		all = append(all, p.fate(t, id))
	}
	return strings.Join(all, " ")
}

func (p *player) wantIntact(t *testing.T, v village) {
	t.Helper()
	if got, want := p.fates(t, v), "READY READY STOPPED PAUSED DEMOTED DELETED"; got != want {
		t.Errorf("they are %s, want %s", got, want)
	}
	if e, err := p.store.Exec(t.Context(), "busy"); err != nil || e.End != nil {
		t.Errorf("the exec has ended: %v, %v", e.End, err)
	}
}

// wantOver: every deadline has been acted on.
func (p *player) wantOver(t *testing.T, v village) {
	t.Helper()
	switch got := p.fates(t, v); got {
	case "STOPPED DELETED DELETED DEMOTED DELETED purged":
	default:
		t.Errorf("they are %s", got)
	}
}

func (p *player) step(by time.Duration) { p.skew.Add(int64(by)) }

// suspend simulates a sleep of the host, as the clocks show it.
func (p *player) suspend(d time.Duration) { p.slept.Add(int64(d)) }

func (p *player) ends(t *testing.T) {
	t.Helper()
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
}

func (p *player) dies(t *testing.T) { t.Helper(); p.restarted(t, 0) }

// boots simulates a reboot that only the clock shows.
func (p *player) boots(t *testing.T, away time.Duration, synced bool) {
	t.Helper()
	p.ends(t)
	p.reboots++
	p.began = time.Now()
	p.slept.Store(0)
	p.step(away)
	p.unsync.Store(!synced)
	if err := p.start(-1); err != nil {
		t.Fatal(err)
	}
}

func TestAJumpOfTheClockDestroysNothingInTheGrace(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(t *testing.T, p *player)
		// over: the deadlines that waited are acted on after the grace. Otherwise nothing was late and nothing is due.
		over bool
	}{
		{"two days ahead for four seconds", func(_ *testing.T, p *player) { p.step(2 * hours); pass(4 * time.Second); p.step(-2 * hours) }, false},
		{"two days behind for four seconds", func(_ *testing.T, p *player) { p.step(-2 * hours); pass(4 * time.Second); p.step(2 * hours) }, false},
		{"two days ahead, and killed, and back", func(t *testing.T, p *player) {
			p.step(2 * hours)
			pass(4 * time.Second)
			p.dies(t)
			pass(4 * time.Second)
			p.dies(t)
			p.step(-2 * hours)
		}, false},
		{"two days ahead, and back while no daemon runs", func(t *testing.T, p *player) {
			p.step(2 * hours)
			pass(4 * time.Second)
			p.ends(t)
			p.step(-2 * hours)
			if err := p.start(-1); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"two days ahead while no daemon runs, and back", func(t *testing.T, p *player) {
			p.ends(t)
			p.step(2 * hours)
			if err := p.start(-1); err != nil {
				t.Fatal(err)
			}
			pass(4 * time.Second)
			p.step(-2 * hours)
		}, false},
		{"two days ahead for good", func(_ *testing.T, p *player) { p.step(2 * hours) }, true},
		{"two days ahead for good, and killed at once", func(t *testing.T, p *player) { p.step(2 * hours); p.dies(t) }, true},
		{"a laptop sleeps for a weekend", func(_ *testing.T, p *player) { p.suspend(2 * hours) }, true},
		{"a laptop sleeps while no daemon runs", func(t *testing.T, p *player) {
			p.ends(t)
			p.suspend(2 * hours)
			if err := p.start(-1); err != nil {
				t.Fatal(err)
			}
		}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				v := p.village(t)
				row.do(t, p)
				pass(5 * time.Second)
				p.wantIntact(t, v)
				warned := p.daemon.ClockWarning()
				if row.over != strings.Contains(warned, "deadlines wait until 20") {
					t.Errorf("it warns of %q", warned)
				}
				pass(grace - 30*time.Second)
				p.wantIntact(t, v)
				pass(3 * time.Minute)
				if !row.over {
					p.wantIntact(t, v)
					pass(hours) // and on time
				}
				if warned := p.daemon.ClockWarning(); warned != "" {
					t.Errorf("it still warns of %q", warned)
				}
				p.wantOver(t, v)
			}, graced)
		})
	}
}

func TestABootIsBelievedWhenItsClockIsSynchronised(t *testing.T) {
	for _, row := range []struct {
		name   string
		away   time.Duration
		synced bool
		at     time.Duration // the time from the start until every deadline was acted on; 0: none was
	}{
		{"synchronised, after two days", 2 * hours, true, 30 * time.Second},
		{"not synchronised, after two days", 2 * hours, false, grace + time.Minute},
		{"synchronised, and earlier than before", -2 * hours, true, 0},
		{"a dead battery", -9000 * hours, false, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				v := p.village(t)
				p.boots(t, row.away, row.synced)
				if row.at > time.Minute {
					pass(row.at - 2*time.Minute)
					p.wantIntact(t, v)
				}
				if row.at > 0 {
					pass(2 * time.Minute)
					p.wantOver(t, v)
					return
				}
				pass(time.Hour)
				p.wantIntact(t, v)
				p.unsync.Store(false)
				p.step(-row.away) // NTP
				pass(30 * time.Second)
				p.wantIntact(t, v)
				pass(grace + time.Minute)
				p.wantIntact(t, v)
			}, graced)
		})
	}
}

// User requests take effect, whatever the clock did.
func TestUserRequestsDoNotWaitForTheClock(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		v := p.village(t)
		p.step(2 * hours)
		pass(2 * time.Second)
		for id, ask := range map[string]func() (bool, error){
			v.idle:    func() (bool, error) { return p.store.RequestStop(t.Context(), v.idle, "stop_requested") },
			v.stopped: func() (bool, error) { return p.store.RequestDelete(t.Context(), v.stopped, "delete_requested") },
			v.frozen:  func() (bool, error) { return p.store.RequestResume(t.Context(), v.frozen) },
			v.timed:   func() (bool, error) { return p.store.RequestDelete(t.Context(), v.timed, "delete_requested") },
		} {
			if changed, err := ask(); !changed || err != nil {
				t.Errorf("%s: %v, %v", id, changed, err)
			}
		}
		pass(2 * time.Minute)
		if got, want := p.fates(t, v), "STOPPED DELETED DELETED READY DEMOTED DELETED"; got != want {
			t.Errorf("they are %s, want %s", got, want)
		}
	}, graced)
}

// A deadline that is set while the clock is wrong expires after its full length.
func TestDeadlinesThatAreSetByAWrongClockAreNeitherEarlyNorLate(t *testing.T) {
	for _, by := range []time.Duration{2 * hours, -2 * hours} {
		withDaemon(t, func(t *testing.T, p *player) {
			set := p.readyBox(t)
			p.step(by)
			pass(2 * time.Second)
			if _, _, err := p.store.SetTimeout(t.Context(), set, store.Timeout{After: time.Hour}); err != nil {
				t.Fatal(err)
			}
			idle, timed, halted := p.readyBox(t), p.create(t, &agboxv1.CreateSpec{Timeout: durationpb.New(time.Hour)}), p.readyBox(t)
			pass(time.Second)
			if _, err := p.store.RequestStop(t.Context(), halted, "stop_requested"); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			p.step(-by)
			fates := func() string {
				return strings.Join([]string{p.fate(t, set), p.fate(t, idle), p.fate(t, timed), p.fate(t, halted)}, " ")
			}
			pass(50 * time.Minute)
			if got := fates(); got != "READY READY READY STOPPED" {
				t.Errorf("%v: too early they are %s", by, got)
			}
			pass(12 * time.Minute)
			if got := fates(); got != "STOPPED READY STOPPED STOPPED" {
				t.Errorf("%v: after an hour they are %s", by, got)
			}
			p.dies(t)
			pass(hours - 55*time.Minute)
			if got := fates(); got != "STOPPED STOPPED DELETED DELETED" && got != "STOPPED STOPPED STOPPED DELETED" {
				t.Errorf("%v: after a day they are %s", by, got)
			}
		}, graced)
	}
}
