// Package clockjump decides from readings of the host's clocks whether deadlines, which are times of its wall clock, may act. After a
// jump of the wall clock, deadlines that stop or delete wait for a grace period, since the clock may jump back; then the clock is
// accepted. The package is pure: the caller supplies the readings and the record of earlier ones.
package clockjump

import (
	"slices"
	"time"
)

const (
	// Tolerance is the largest step of the wall clock, and the longest suspend of the host, that does not count as a jump. A leap
	// second, and NTP's correction after a resume from a battery clock with whole seconds, are smaller.
	Tolerance = 5 * time.Second
	// confirmEvery is the interval at which a clock without a jump is confirmed. Steps below Tolerance add up in between, so an
	// undetected drift is at most Tolerance per minute.
	confirmEvery = time.Minute
	// maxGraces bounds a wait that further jumps extend, in grace periods.
	maxGraces = 6
	// maxSpans bounds the number of recorded runs of wrong clocks.
	maxSpans = 16
)

// Reading is one reading of the host's clocks.
type Reading struct {
	// Wall is the wall clock, without Go's monotonic part.
	Wall time.Time
	// SinceBoot is CLOCK_BOOTTIME, which counts while the host is suspended; Awake is CLOCK_MONOTONIC, which does not. NTP slews
	// both like the wall clock, and steps neither: Wall - SinceBoot, the time of the boot, changes only by a step.
	SinceBoot, Awake time.Duration
	// BootID is the kernel's boot ID.
	BootID string
	// Synced: the kernel reports the wall clock as synchronised (adjtimex, not STA_UNSYNC).
	Synced bool
}

func (r Reading) bootedAt() time.Time { return r.Wall.Add(-r.SinceBoot) }

// State is the verdict on the wall clock and its history. It is a value: Observe returns the next State. The zero State has no history
// and accepts the first reading; see Unrecorded.
type State struct {
	BootID string
	// BootedAt is the time of the boot by the accepted clock; zero until a clock of this boot is accepted.
	BootedAt time.Time
	// Wall is the accepted clock when it was last confirmed.
	Wall time.Time
	// Slept is how long the host has been suspended since its boot.
	Slept time.Duration
	// Since is when the accepted clock was last corrected, in its own time: at an accepted jump, or when it jumped back.
	Since time.Time
	// Unsure is the earliest time that may have been read from a clock that was accepted after a boot without synchronisation and is
	// still not synchronised. Zero: there is no such clock.
	Unsure time.Time
	// Doubt is a clock that is not accepted yet.
	Doubt *Doubt
	// Woke is the wait after a suspend.
	Woke *Wait
	// Wrong are the runs of clocks that were never accepted, oldest first.
	Wrong []Span

	looked time.Duration // SinceBoot at the last reading; 0 after a restart
}

// Wait is a running grace period, in CLOCK_MONOTONIC.
type Wait struct {
	// First is when it started, Last when it was last restarted.
	First, Last time.Duration
}

// left returns the rest of the wait.
func (w *Wait) left(awake, grace time.Duration) time.Duration {
	if w == nil {
		return 0
	}
	return max(0, min(w.Last+grace, w.First+maxGraces*grace)-awake)
}

// Doubt is a run of a clock that has jumped.
type Doubt struct {
	Wait
	// NewBoot: no clock was accepted since the boot, so there is none to return to.
	NewBoot bool
	// BootedAt is the time of the boot by this clock.
	BootedAt time.Time
	// From is the earliest time that may have been read from this clock, Since the first known reading, To the last.
	From, Since, To time.Time
}

// Span is a run of a clock that turned out to be wrong.
type Span struct {
	// From and To bound the times that may have been read from it.
	From, To time.Time
	// At is when the run ended, by the clock that followed.
	At time.Time
}

// Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	// Forward and Backward: the wall clock was stepped.
	Forward  Kind = "forward"
	Backward Kind = "backward"
	// Suspend: the host was suspended.
	Suspend Kind = "suspend"
	// Boot: the host booted, and its clock is not synchronised, or earlier than the last record.
	Boot Kind = "boot"
	// Returned: the clock jumped back within the grace period, which ends.
	Returned Kind = "returned"
	// Believed: a grace period ended, and the clock is accepted.
	Believed Kind = "believed"
)

// Jumps returns the kinds that start a grace period.
func Jumps() []Kind { return []Kind{Forward, Backward, Suspend, Boot} }

// Event is a change shown by a reading.
type Event struct {
	Kind Kind
	// By is the size of the step, or how long the host was suspended.
	By time.Duration
}

// Unrecorded is the State of a daemon that has records of sandboxes but none of a clock. An unsynchronised clock is then
// as uncertain as after a reboot.
func Unrecorded() State { return State{BootID: "unrecorded"} }

// Observe processes a reading and returns the next State.
func (s State) Observe(r Reading, grace time.Duration) (State, []Event) {
	var events []Event
	switch s.BootID {
	case "":
		s = State{BootID: r.BootID, BootedAt: r.bootedAt(), Wall: r.Wall, Since: r.Wall}
	case r.BootID:
		events = s.wake(r, grace)
		events = append(events, s.step(r, grace)...)
	default:
		events = s.boot(r, grace)
	}
	s.Slept, s.looked = r.SinceBoot-r.Awake, r.SinceBoot
	return s, events
}

// Left returns how long deadlines wait after a reading, in time that the host is awake; 0: they don't wait.
func (s State) Left(r Reading, grace time.Duration) time.Duration {
	left := s.Woke.left(r.Awake, grace)
	if s.Doubt != nil {
		left = max(left, s.Doubt.left(r.Awake, grace))
	}
	return left
}

// wake starts a wait when the host was suspended, and ends a completed one.
func (s *State) wake(r Reading, grace time.Duration) []Event {
	var events []Event
	if s.Woke != nil && s.Woke.left(r.Awake, grace) == 0 {
		s.Woke, events = nil, []Event{{Believed, 0}}
	}
	slept := r.SinceBoot - r.Awake - s.Slept
	if slept <= Tolerance {
		return events
	}
	w := Wait{First: r.Awake, Last: r.Awake}
	if s.Woke != nil {
		w.First = s.Woke.First
	}
	if w.left(r.Awake, grace) > 0 {
		s.Woke = &w
	}
	return append(events, Event{Suspend, slept})
}

// step compares the time of the boot with the previous one.
func (s *State) step(r Reading, grace time.Duration) []Event {
	was := s.BootedAt
	if s.Doubt != nil {
		was = s.Doubt.BootedAt
	}
	by := r.bootedAt().Sub(was)
	switch {
	case by.Abs() <= Tolerance && s.Doubt == nil:
		s.confirm(r)
		return nil
	case by.Abs() <= Tolerance:
		d := *s.Doubt
		d.To = r.Wall
		s.Doubt = &d
		return s.settle(r, grace)
	case s.Doubt == nil:
		s.doubt(r, Wait{r.Awake, r.Awake}, false)
	default:
		d := s.Doubt
		s.addWrong(Span{d.From, d.BootedAt.Add(r.SinceBoot), r.Wall})
		if back := r.bootedAt().Sub(s.BootedAt).Abs(); !d.NewBoot && back <= Tolerance {
			s.Doubt, s.Since = nil, r.Wall
			return []Event{{Returned, by}}
		}
		s.doubt(r, Wait{d.First, r.Awake}, d.NewBoot)
	}
	kind := Forward
	if by < 0 {
		kind = Backward
	}
	return append([]Event{{kind, by}}, s.settle(r, grace)...)
}

// confirm records a reading without a jump.
func (s *State) confirm(r Reading) {
	if r.Wall.Sub(s.Wall) >= confirmEvery {
		s.BootedAt, s.Wall = r.bootedAt(), r.Wall
	}
	if r.Synced {
		s.Unsure = time.Time{}
	}
}

// doubt starts a run of an unaccepted clock.
func (s *State) doubt(r Reading, w Wait, newBoot bool) {
	looked := s.looked
	if looked == 0 && !s.BootedAt.IsZero() {
		looked = s.Wall.Sub(s.BootedAt) // the age of the record
	}
	if newBoot {
		looked = 0
	}
	s.Doubt = &Doubt{
		Wait: w, NewBoot: newBoot, BootedAt: r.bootedAt(), From: r.Wall.Add(looked - r.SinceBoot), Since: r.Wall, To: r.Wall,
	}
}

// settle accepts the doubtful clock when its grace period has ended, or after a boot when it is synchronised.
func (s *State) settle(r Reading, grace time.Duration) []Event {
	d := s.Doubt
	if d.left(r.Awake, grace) > 0 && (!d.NewBoot || !s.trusts(r)) {
		return nil
	}
	if by := d.BootedAt.Sub(s.BootedAt); !s.Unsure.IsZero() && by > 0 && !d.NewBoot {
		s.addWrong(Span{s.Unsure, d.Since.Add(-by), d.Since}) // NTP corrected the clock late
	}
	s.Unsure = time.Time{}
	if d.NewBoot && !s.trusts(r) {
		s.Unsure = d.From
	}
	s.BootedAt, s.Wall, s.Since, s.Doubt = r.bootedAt(), r.Wall, d.Since, nil
	return []Event{{Believed, 0}}
}

// trusts reports whether the clock of a new boot needs no grace.
func (s *State) trusts(r Reading) bool {
	return r.Synced && !r.Wall.Before(s.Wall.Add(-Tolerance))
}

// boot starts another boot. A doubtful clock of the previous boot counts as wrong.
func (s *State) boot(r Reading, grace time.Duration) []Event {
	if d := s.Doubt; d != nil {
		s.addWrong(Span{d.From, d.To.Add(confirmEvery), r.Wall})
		s.Since = r.Wall
	}
	s.BootID, s.BootedAt, s.Unsure, s.Doubt, s.Woke, s.looked = r.BootID, time.Time{}, time.Time{}, nil, nil, 0
	if s.trusts(r) {
		s.BootedAt, s.Wall = r.bootedAt(), r.Wall
		return nil
	}
	s.doubt(r, Wait{r.Awake, r.Awake}, true)
	return append([]Event{{Boot, 0}}, s.settle(r, grace)...)
}

// addWrong records a run of a wrong clock; beyond maxSpans it merges the runs with the closest starts.
func (s *State) addWrong(w Span) {
	if w.To.Before(w.From) {
		return
	}
	if len(s.Wrong) < maxSpans {
		s.Wrong = append(slices.Clip(s.Wrong), w)
		return
	}
	nearest := 0
	for i, o := range s.Wrong {
		if o.From.Sub(w.From).Abs() < s.Wrong[nearest].From.Sub(w.From).Abs() {
			nearest = i
		}
	}
	o := s.Wrong[nearest]
	if o.From.Before(w.From) {
		w.From = o.From
	}
	if o.To.After(w.To) {
		w.To = o.To
	}
	s.Wrong = slices.Delete(slices.Clone(s.Wrong), nearest, nearest+1)
	s.Wrong = append(s.Wrong, w)
}
