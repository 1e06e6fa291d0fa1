package plan

import "time"

// due reports whether the plan acts on the deadline kind, of which left remains; if not, it sets the requeue for the deadline. After a jump
// of the clock no deadline is due until the clock is accepted.
func (p *Plan) due(kind string, left time.Duration, pol Policy) bool {
	switch {
	case left > 0:
		p.soonest(left)
		return false
	case pol.Hold > 0:
		p.soonest(pol.Hold)
		if p.Waiting == "" {
			p.Waiting = kind + " has passed, but the host's clock jumped or the host slept; nothing is done before runtime.clock_grace is over"
		}
		return false
	}
	return true
}

// Began returns the start of a wait that was recorded as t. While the clock is in doubt, or if t lies in the future, that is the last jump
// of the clock: a jump shortens no wait, and no wait lasts longer than its length counted from the jump.
func (pol Policy) Began(t, now time.Time) time.Time {
	if pol.Hold > 0 && pol.AwakeSince.After(t) || t.Sub(now) > aClockApart {
		return pol.AwakeSince
	}
	return t
}
