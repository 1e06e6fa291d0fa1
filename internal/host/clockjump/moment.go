package clockjump

import (
	"slices"
	"time"
)

// maxSkew is the largest difference tolerated between adjacent readings of one clock.
const maxSkew = time.Minute

// Moment is the time against which deadlines are compared, with the history of the clock that dated the records.
type Moment struct {
	Now time.Time
	// Since is when the clock was last corrected.
	Since time.Time
	// Wrong are runs of clocks that were wrong.
	Wrong []Span

	latest time.Time // the latest time that a right clock may have recorded; never before Now
}

// Moment returns the Moment of a reading.
func (s State) Moment(r Reading) Moment { return Moment{Now: r.Wall, Since: s.Since, Wrong: s.Wrong} }

// CheckedAt returns the same moment for records made until now, which do not count as future.
func (m Moment) CheckedAt(now time.Time) Moment {
	m.latest = now
	return m
}

// Began translates t, a recorded start time, to the present clock. The result is t, unless t was read from a wrong clock or
// is in the future: then it is when the clock was corrected. If the right clock may have shown t as well, the result is the later
// of the two, so that a deadline may be late but never early. The zero time is unchanged.
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

// readings returns the times that a recorded t may mean. A wrong clock may have been followed by another wrong one, so each
// result is translated again.
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

// Age returns how long ago t was, translated as by Began. It is negative for a time in the future.
func (m Moment) Age(t time.Time) time.Duration { return m.Now.Sub(m.Began(t)) }

// Deadline translates a deadline that was set relative to the recorded time from. With a zero from it was set absolutely, and is unchanged.
func (m Moment) Deadline(at, from time.Time) time.Time {
	if at.IsZero() || from.IsZero() {
		return at
	}
	return at.Add(m.Began(from).Sub(from))
}
