package agent

import (
	"maps"
	"time"
)

// memory is what this daemon remembers of one agent; see package scratch.
type memory struct {
	// status is what the agent waits for. verified: a pass has judged it since the start.
	status   string
	verified bool
	// delivered identifies everything that was written to its inbox; see Observation.message. given is the newest prompt that was counted
	// as given.
	delivered, given string
	// alive is the newest exec of the agent that was observed running, started the newest that this daemon has started.
	alive, started string
	// transitions is how many of its transitions are counted. Those before counting started belong to an earlier daemon.
	transitions uint64
	counting    bool
	// helpers holds when this daemon started to wait for each command, by exec ID.
	helpers map[string]time.Time
}

// waited returns how long the daemon has waited for a command; 0: it does not wait.
func (m memory) waited(execID string) time.Duration {
	if at := m.helpers[execID]; !at.IsZero() {
		return max(time.Since(at), 1) // by the monotonic clock, which cannot be set
	}
	return 0
}

// Clone implements scratch.Record.
func (m memory) Clone() memory {
	m.helpers = maps.Clone(m.helpers)
	return m
}

// IsEmpty implements scratch.Record. A record lasts as long as its agent: a new one would count transitions from the start.
func (m memory) IsEmpty() bool { return false }
