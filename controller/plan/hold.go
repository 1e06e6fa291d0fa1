package plan

import "time"

// due reports whether the deadline kind is to be acted on when so much is left of it; if not, the plan looks again in time. After
// a jump of the clock none is: what falls due then waits until the clock is believed.
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
