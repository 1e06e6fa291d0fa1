package agent

import (
	"maps"
	"sync"
	"time"
)

// scratch is the memory of this daemon about one agent. All of it is derived and is lost with the process.
type scratch struct {
	// status is what the agent waits for. verified: a pass has judged it since the start.
	status   string
	verified bool
	// delivered identifies everything that was written to its inbox; see Observation.message. given is the newest prompt that was counted
	// as given.
	delivered, given string
	// alive is the newest exec of the agent that was observed running, started the newest that this daemon has started.
	alive, started string
	// saving: a drain is saving its work.
	saving bool
	// transitions is how many of its transitions are counted. Those before counting started belong to an earlier daemon.
	transitions uint64
	counting    bool
	// helpers holds when this daemon started to wait for each command, by exec ID.
	helpers map[string]time.Time
}

// waited returns how long the daemon has waited for a command; 0: it does not wait.
func (s scratch) waited(execID string) time.Duration {
	if at := s.helpers[execID]; !at.IsZero() {
		return max(time.Since(at), 1) // by the monotonic clock, which cannot be set
	}
	return 0
}

// scratchpad keeps one scratch record per agent.
type scratchpad struct {
	mu sync.RWMutex
	of map[string]*scratch
}

func newScratchpad() *scratchpad { return &scratchpad{of: map[string]*scratch{}} }

// get returns a copy.
func (p *scratchpad) get(id string) scratch {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if s := p.of[id]; s != nil {
		c := *s
		c.helpers = maps.Clone(s.helpers)
		return c
	}
	return scratch{}
}

// change calls fn, which must not block, with the record of an agent.
func (p *scratchpad) change(id string, fn func(*scratch)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[id]
	if s == nil {
		s = &scratch{}
		p.of[id] = s
	}
	fn(s)
}

func (p *scratchpad) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
}
