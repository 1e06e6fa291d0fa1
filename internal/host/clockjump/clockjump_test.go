package clockjump

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	grace = 10 * time.Minute
	day   = 24 * time.Hour
)

var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// host is a machine with clocks, and a daemon that reads them.
type host struct {
	Reading
	state  State
	stored State // the record for a new daemon
	seen   []string
}

func newHost() *host {
	h := &host{Reading: Reading{Wall: start, SinceBoot: time.Hour, Awake: time.Hour, BootID: "one", Synced: true}}
	h.look()
	h.store()
	return h
}

func (h *host) look() {
	var events []Event
	h.state, events = h.state.Observe(h.Reading, grace)
	for _, e := range events {
		word := string(e.Kind)
		if e.By != 0 {
			word += " " + e.By.String()
		}
		h.seen = append(h.seen, word)
	}
	if len(events) > 0 {
		h.store()
	}
}

func (h *host) store() { h.stored = h.state; h.stored.looked = 0 }

// run advances the time, with a reading every second.
func (h *host) run(d time.Duration) {
	for ; d > 0; d -= time.Second {
		h.pass(min(d, time.Second))
		h.look()
	}
}

// pass advances the time without a reading.
func (h *host) pass(d time.Duration) {
	h.Wall, h.SinceBoot, h.Awake = h.Wall.Add(d), h.SinceBoot+d, h.Awake+d
}

func (h *host) step(d time.Duration) { h.Wall = h.Wall.Add(d) }

func (h *host) suspend(d time.Duration) { h.Wall, h.SinceBoot = h.Wall.Add(d), h.SinceBoot+d }

// die simulates a kill -9 and a new daemon.
func (h *host) die() { h.state = h.stored; h.look() }

func (h *host) reboot(id string, wall time.Time, synced bool) {
	h.Reading = Reading{Wall: wall, SinceBoot: 20 * time.Second, Awake: 20 * time.Second, BootID: id, Synced: synced}
	h.die()
}

func (h *host) left() time.Duration { return h.state.Left(h.Reading, grace) }

func TestWhenDeadlinesWait(t *testing.T) {
	rows := []struct {
		name string
		do   func(*host)
		seen string
		left time.Duration
	}{
		{"nothing happens", func(h *host) { h.run(time.Hour) }, "", 0},
		{"a step of two days for four seconds", func(h *host) { h.step(2 * day); h.run(4 * time.Second); h.step(-2 * day); h.run(time.Second) },
			"forward 48h0m0s, returned -48h0m0s", 0},
		{"forward, in the grace", func(h *host) { h.step(2 * day); h.run(time.Minute) }, "forward 48h0m0s", 9*time.Minute + time.Second},
		{"forward, after the grace", func(h *host) { h.step(2 * day); h.run(11 * time.Minute) }, "forward 48h0m0s, believed", 0},
		{"backward, in the grace", func(h *host) { h.step(-time.Hour); h.run(time.Minute) }, "backward -1h0m0s", 9*time.Minute + time.Second},
		{"backward, after the grace", func(h *host) { h.step(-time.Hour); h.run(11 * time.Minute) }, "backward -1h0m0s, believed", 0},
		{"back after the grace is another jump", func(h *host) { h.step(day); h.run(11 * time.Minute); h.step(-day); h.run(time.Second) },
			"forward 24h0m0s, believed, backward -24h0m0s", grace},
		{"another step in the grace begins it again", func(h *host) { h.step(time.Hour); h.run(9 * time.Minute); h.step(day); h.run(time.Second) },
			"forward 1h0m0s, forward 24h0m0s", grace},
		{"a clock that never rests is believed after six graces", func(h *host) {
			for range 61 {
				h.step(time.Hour)
				h.run(time.Minute)
			}
		}, strings.Repeat("forward 1h0m0s, ", 61) + "believed", 0},
		{"less than what counts, a few times", func(h *host) {
			h.step(3 * time.Second)
			h.run(2 * time.Minute)
			h.step(3 * time.Second)
			h.run(2 * time.Minute)
		}, "", 0},
		{"less than what counts, and at once again", func(h *host) {
			h.step(3 * time.Second)
			h.run(time.Second)
			h.step(3 * time.Second)
			h.run(time.Second)
		},
			"forward 6s", grace},
		{"a leap second", func(h *host) { h.step(-time.Second); h.run(time.Hour) }, "", 0},

		{"a suspend", func(h *host) { h.suspend(8 * time.Hour); h.run(time.Minute) }, "suspend 8h0m0s", 9*time.Minute + time.Second},
		{"a suspend, after the grace", func(h *host) { h.suspend(8 * time.Hour); h.run(11 * time.Minute) }, "suspend 8h0m0s, believed", 0},
		{"a suspend, corrected a little after it", func(h *host) {
			h.suspend(8 * time.Hour)
			h.run(time.Second)
			h.step(time.Second)
			h.run(11 * time.Minute)
		},
			"suspend 8h0m0s, believed", 0},
		{"a suspend whose time the clock does not know, then NTP", func(h *host) {
			h.SinceBoot += 8 * time.Hour // the battery is dead
			h.run(time.Minute)
			h.step(8 * time.Hour)
			h.run(time.Second)
		}, "suspend 8h0m0s, backward -8h0m0s, returned 8h0m0s", 9 * time.Minute},
		{"a wink", func(h *host) { h.suspend(2 * time.Second); h.run(time.Minute) }, "", 0},
		{"suspends again and again wait six graces awake", func(h *host) {
			for range 13 {
				h.suspend(time.Hour)
				h.run(5 * time.Minute)
			}
		}, strings.Repeat("suspend 1h0m0s, ", 12) + "believed, suspend 1h0m0s", 5*time.Minute + time.Second},

		{"the daemon was away", func(h *host) { h.pass(day); h.die() }, "", 0},
		{"the daemon was away, and the host slept", func(h *host) { h.suspend(day); h.die() }, "suspend 24h0m0s", grace},
		{"a jump while the daemon is away", func(h *host) { h.pass(time.Hour); h.step(2 * day); h.die() }, "forward 48h0m0s", grace},
		{"a jump and back while the daemon is away", func(h *host) { h.step(2 * day); h.pass(time.Hour); h.step(-2 * day); h.die() }, "", 0},
		{"killed in the grace", func(h *host) { h.step(2 * day); h.run(time.Minute); h.die(); h.run(time.Minute); h.die() },
			"forward 48h0m0s", 8*time.Minute + time.Second},
		{"killed before the jump is on record", func(h *host) { before := h.stored; h.step(2 * day); h.run(time.Minute); h.stored = before; h.die() },
			"forward 48h0m0s, forward 48h0m0s", grace},
		{"killed in the grace, and the clock comes back meanwhile", func(h *host) { h.step(2 * day); h.run(time.Minute); h.step(-2 * day); h.pass(time.Hour); h.die() },
			"forward 48h0m0s, returned -48h0m0s", 0},
		{"away until the grace is over", func(h *host) { h.step(2 * day); h.run(time.Minute); h.pass(time.Hour); h.die() }, "forward 48h0m0s, believed", 0},

		{"a boot, synchronised", func(h *host) { h.reboot("two", start.Add(day), true) }, "", 0},
		{"a boot in the grace, synchronised", func(h *host) { h.step(2 * day); h.run(time.Minute); h.reboot("two", start.Add(time.Hour), true) },
			"forward 48h0m0s", 0},
		{"a boot, not synchronised", func(h *host) { h.reboot("two", start.Add(day), false); h.run(time.Minute) }, "boot", 9 * time.Minute},
		{"a boot, not synchronised, after the grace", func(h *host) { h.reboot("two", start.Add(day), false); h.run(11 * time.Minute) }, "boot, believed", 0},
		{"a boot that is synchronised later", func(h *host) {
			h.reboot("two", start.Add(day), false)
			h.run(time.Minute)
			h.Synced = true
			h.run(time.Second)
		}, "boot, believed", 0},
		{"a boot whose battery is dead, then NTP", func(h *host) {
			h.reboot("two", time.Unix(0, 0), false)
			h.run(time.Minute)
			h.step(start.Add(day).Sub(h.Wall))
			h.run(time.Second)
			h.Synced = true
			h.run(time.Second)
		}, "boot, forward 498731h59m0s, believed", 0},
		{"a boot whose battery is dead, and NTP comes in the same second", func(h *host) {
			h.reboot("two", time.Unix(0, 0), false)
			h.step(start.Add(day).Sub(h.Wall))
			h.Synced = true
			h.run(time.Second)
		}, "boot, forward 498732h0m0s, believed", 0},
		{"a boot whose battery is dead, and NTP is late", func(h *host) {
			h.reboot("two", time.Unix(0, 0), false)
			h.run(11 * time.Minute)
			h.step(start.Add(day).Sub(h.Wall))
			h.Synced = true
			h.run(time.Second)
		}, "boot, believed, forward 498731h49m0s", grace},
		{"a boot, synchronised, earlier than the record", func(h *host) { h.reboot("two", start.Add(-day), true); h.run(time.Second) },
			"boot", grace - time.Second},
		{"a record from the future", func(h *host) {
			h.step(100 * 365 * day)
			h.run(11 * time.Minute) // accepted
			h.reboot("two", start.Add(time.Hour), true)
			h.run(11 * time.Minute)
		}, "forward 876000h0m0s, believed, boot, believed", 0},
		{"two boots in a row, not synchronised", func(h *host) {
			h.reboot("two", start.Add(day), false)
			h.run(time.Minute)
			h.reboot("three", start.Add(day), false)
		}, "boot, boot", grace},
		{"nothing is on record of a clock, and it is not synchronised", func(h *host) { h.stored, h.Synced = Unrecorded(), false; h.die() }, "boot", grace},
		{"nothing is on record of a clock, and it is synchronised", func(h *host) { h.stored = Unrecorded(); h.die() }, "", 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			h := newHost()
			row.do(h)
			if seen := strings.Join(h.seen, ", "); seen != row.seen || h.left() != row.left {
				t.Errorf("seen %q, %v left; want %q, %v", seen, h.left(), row.seen, row.left)
			}
		})
	}
}

func TestNoGraceIsNoWait(t *testing.T) {
	s, _ := State{}.Observe(Reading{Wall: start, BootID: "b"}, 0)
	r := Reading{Wall: start.Add(2 * day), SinceBoot: time.Minute, Awake: time.Second, BootID: "b"}
	s, events := s.Observe(r, 0)
	if want := []Kind{Suspend, Forward, Believed}; !slices.EqualFunc(events, want, func(e Event, k Kind) bool { return e.Kind == k }) || s.Left(r, 0) != 0 {
		t.Errorf("%v, %v", events, s.Left(r, 0))
	}
	r.BootID = "c"
	s, events = s.Observe(r, 0)
	if len(events) != 2 || s.Left(r, 0) != 0 {
		t.Errorf("%v, %v", events, s.Left(r, 0))
	}
}

// A time that was recorded by a wrong clock counts from when that clock was corrected.
func TestBegan(t *testing.T) {
	rows := []struct {
		name string
		do   func(h *host, mark func())
		age  time.Duration
	}{
		{"the clock runs", func(h *host, mark func()) { mark(); h.run(time.Hour) }, time.Hour},
		{"while it was ahead", func(h *host, mark func()) {
			h.step(2 * day)
			h.run(2 * time.Second)
			mark()
			h.run(2 * time.Second)
			h.step(-2 * day)
			h.run(time.Hour)
		}, time.Hour},
		{"in the second before it was seen ahead", func(h *host, mark func()) {
			h.step(2 * day)
			h.pass(time.Second / 2)
			mark()
			h.pass(time.Second / 2)
			h.look()
			h.step(-2 * day)
			h.run(time.Hour)
		}, time.Hour},
		{"while it was behind", func(h *host, mark func()) {
			h.step(-2 * day)
			h.run(2 * time.Second)
			mark()
			h.run(2 * time.Second)
			h.step(2 * day)
			h.run(time.Hour)
		}, time.Hour},
		{"while it was behind, and the daemon died", func(h *host, mark func()) {
			h.step(-2 * day)
			h.run(2 * time.Second)
			mark()
			h.run(2 * time.Second)
			h.step(2 * day)
			h.die()
			h.run(time.Hour)
		}, time.Hour},
		{"before it was behind", func(h *host, mark func()) {
			mark()
			h.run(time.Minute)
			h.step(-2 * day)
			h.run(2 * time.Second)
			h.step(2 * day)
			h.run(time.Hour)
		}, time.Hour + time.Minute + 2*time.Second},
		{"while it was ahead, and that is believed", func(h *host, mark func()) {
			h.step(2 * day)
			h.run(time.Minute)
			mark()
			h.run(time.Hour)
		}, time.Hour},
		{"while it was ahead and believed", func(h *host, mark func()) {
			h.step(2 * day)
			h.run(20 * time.Minute)
			mark()
			h.step(-2 * day)
			h.run(time.Hour)
		}, time.Hour - time.Second},
		{"by one wrong clock that was left for another", func(h *host, mark func()) {
			h.step(-2 * day)
			h.run(2 * time.Second)
			mark()
			h.step(day)
			h.run(2 * time.Second)
			h.step(day)
			h.run(time.Hour)
		}, time.Hour},
		{"by the right clock, when it comes to where a wrong one was", func(h *host, mark func()) {
			h.step(100 * time.Second)
			h.run(10 * time.Second)
			h.step(-100 * time.Second)
			h.run(95 * time.Second)
			mark()
			h.run(5 * time.Minute)
		}, 5 * time.Minute},
		{"while it was ahead, and the right clock comes there too", func(h *host, mark func()) {
			h.step(100 * time.Second)
			h.run(2 * time.Second)
			mark()
			h.step(-100 * time.Second)
			h.run(5 * time.Minute)
		}, 200 * time.Second},
		{"by a dead battery", func(h *host, mark func()) {
			h.reboot("two", time.Unix(0, 0), false)
			h.run(time.Minute)
			mark()
			h.Synced = true
			h.step(start.Sub(h.Wall) + day)
			h.run(time.Hour)
		}, time.Hour},
		{"by a dead battery, and NTP is late", func(h *host, mark func()) {
			h.reboot("two", time.Unix(0, 0), false)
			h.run(20 * time.Minute)
			mark()
			h.Synced = true
			h.step(start.Sub(h.Wall) + day)
			h.run(time.Hour)
		}, time.Hour - time.Second},
		{"by a dead battery, until the next boot", func(h *host, mark func()) {
			h.reboot("two", time.Unix(0, 0), false)
			h.run(5 * time.Minute)
			h.store()
			mark()
			h.run(time.Second)
			h.reboot("three", start.Add(day), true)
			h.run(time.Hour)
		}, time.Hour},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			h := newHost()
			var marked time.Time
			row.do(h, func() { marked = h.Wall })
			m := h.state.Moment(h.Reading)
			if age := m.Now.Sub(m.Began(marked)); (age - row.age).Abs() > time.Second {
				t.Errorf("it is %v old, want %v", age, row.age)
			}
			deadline := m.Deadline(marked.Add(2*time.Hour), marked)
			if left := deadline.Sub(m.Now); (left - (2*time.Hour - row.age)).Abs() > time.Second {
				t.Errorf("a deadline of two hours expires in %v", left)
			}
		})
	}
	if m := (Moment{Now: start}); !m.Began(time.Time{}).IsZero() || !m.Deadline(time.Time{}, start).IsZero() || !m.Deadline(start, time.Time{}).Equal(start) {
		t.Error("no time became one")
	}
}

// For any clock, no record ages faster than elapsed time while a jump is not accepted, and every wait ends.
func TestRecordsNeverAgeFasterThanElapsedTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHost()
		h.run(2 * time.Minute)
		type fact struct {
			dated time.Time
			at    time.Duration // SinceBoot
		}
		var facts []fact
		away := time.Duration(0) // the error of the clock
		for i := range rapid.IntRange(1, 30).Draw(t, "acts") {
			switch rapid.IntRange(0, 4).Draw(t, fmt.Sprint("act", i)) {
			case 0: // a random step
				d := time.Duration(rapid.IntRange(-1000, 1000).Draw(t, "step")) * 100 * time.Second
				h.step(d)
				away += d
			case 1:
				h.step(-away)
				away = 0
			case 2:
				h.look() // records are dated by a clock read within the last second
				facts = append(facts, fact{h.Wall, h.SinceBoot})
			case 3:
				h.die()
			}
			h.run(time.Duration(rapid.IntRange(1, 10).Draw(t, "seconds")) * time.Second)
			if away == 0 && h.state.Doubt != nil {
				t.Fatalf("the clock has returned, but is in doubt: %v", h.seen)
			}
			if h.left() > 0 {
				continue
			}
			m := h.state.Moment(h.Reading)
			for _, f := range facts {
				if age, most := m.Now.Sub(m.Began(f.dated)), h.SinceBoot-f.at; age > most+Tolerance {
					t.Fatalf("a start %v ago is %v old: %v\n%+v", most, age, h.seen, h.state)
				}
			}
		}
		h.run(maxGraces*grace + time.Second)
		if h.left() != 0 {
			t.Fatalf("deadlines never stop waiting: %v", h.seen)
		}
	})
}
