package plan

import "time"

// due reports whether the plan acts on the deadline kind, of which left remains; if not, it requeues the sandbox for the deadline. After
// a jump of the clock no deadline is due until the clock is accepted.
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
