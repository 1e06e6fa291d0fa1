package shim

import (
	"time"

	"github.com/agbox/agbox/internal/execid"
)

const (
	// parkFor is how long agents may save their work after TERM. The other processes have the rest of the 10 s that docker stop and the
	// shutdown of the engine grant. PID 1 cannot know a longer grace period.
	parkFor = 8 * time.Second
	// parkQuiet is how long agboxd has to start the command that saves an agent's work when the agent's process has ended.
	parkQuiet = time.Second
)

// parking is the time between TERM and the end of all processes in which agboxd interrupts and ends the agents and saves their work. It
// learns of the TERM from the file that noteTerm makes. Without agents, or while agboxd is away, there is no such time.
type parking struct {
	until time.Time // zero: there was no TERM
	quiet time.Time // the end of the wait for a command that saves work
}

func (k *parking) due() time.Time {
	if k.until.IsZero() {
		return time.Time{}
	}
	return earlier(k.until, k.quiet)
}

// park begins the parking, or stops everything.
func (p *initProcess) park(now time.Time) {
	if p.draining || !p.parking.until.IsZero() || p.channel.fd < 0 || !p.hasAgents() {
		p.drain()
		return
	}
	p.parking = parking{until: now.Add(parkFor), quiet: now.Add(parkQuiet)}
}

// parked stops everything once the parking is over.
func (p *initProcess) parked(now time.Time) {
	if p.parking.until.IsZero() || p.draining {
		return
	}
	if p.hasAgents() {
		p.parking.quiet = now.Add(parkQuiet)
	}
	if p.channel.fd < 0 || !now.Before(p.parking.due()) {
		p.drain()
	}
}

// hasAgents reports whether a process of an agent lives, or a command that agboxd runs for one.
func (p *initProcess) hasAgents() bool {
	for id := range p.children {
		if _, _, ok := execid.OfAgent(id); ok || execid.IsHelper(id) {
			return true
		}
	}
	return false
}
