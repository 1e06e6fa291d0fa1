package clockjump

import (
	"slices"
	"time"
)

// maxSkew is the largest difference tolerated between adjacent readings of one clock.
const maxSkew = time.Minute

// Moment is the time by which a deadline is judged, with what is known of the clock that the records were dated by.
type Moment struct {
	Now time.Time
	// Since is when the clock was last set right.
	Since time.Time
	// Wrong are runs of clocks that were wrong.
	Wrong []Span

	latest time.Time // no record is dated later by a clock that is right; never before Now
}

// Moment returns that of a reading.
func (s State) Moment(r Reading) Moment { return Moment{Now: r.Wall, Since: s.Since, Wrong: s.Wrong} }

// CheckedAt is the same moment for records that may have been made since, until now: those are not of the future.
func (m Moment) CheckedAt(now time.Time) Moment {
	m.latest = now
	return m
}

// Began returns when something began that the records date t, by the clock as it goes now. It is t, unless t was read from a
// clock that was wrong, or is still to come: then it is when the clock was set right. When the right clock may have shown t
// too, it is the later of the two: what is judged by it is late then, never early. The zero time stays.
func (m Moment) Began(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	latest := m.Now
	if m.latest.After(latest) {
		latest = m.latest
	}
	times := m.readings(t)
	began := slices.MinFunc(times, time.Time.Compare)
	for _, at := range times {
		if at.After(began) && !at.After(latest) {
			began = at
		}
	}
	if began.Sub(latest) > maxSkew && !m.Since.IsZero() && m.Since.Before(m.Now) {
		return m.Since
	}
	return began
}

// readings are the times at which something may have begun that the records date t. One wrong clock may have been left for
// another, so what a clock was left at is looked for among them in turn.
func (m Moment) readings(t time.Time) []time.Time {
	times := []time.Time{t}
	seen := make([]bool, len(m.Wrong))
	for i := 0; i < len(times); i++ {
		for j, w := range m.Wrong {
			if !seen[j] && !times[i].Before(w.From) && !times[i].After(w.To) {
				seen[j], times = true, append(times, w.At)
			}
		}
	}
	return times
}

// Age is how long ago something began that the records date t. It is below zero for what is still to come.
func (m Moment) Age(t time.Time) time.Duration { return m.Now.Sub(m.Began(t)) }

// Deadline returns a deadline that was set as a time from a moment, which the records date from. Zero: it was set as a time.
func (m Moment) Deadline(at, from time.Time) time.Time {
	if at.IsZero() || from.IsZero() {
		return at
	}
	return at.Add(m.Began(from).Sub(from))
}
