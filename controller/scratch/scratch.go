// Package scratch keeps what this daemon remembers of each object of a kind: one record per ID, derived, and lost with the process.
package scratch

import "sync"

// Record is what is remembered of one object.
type Record[R any] interface {
	// Clone returns a copy that shares nothing that changes.
	Clone() R
	// IsEmpty reports whether the record is empty, so that it can be dropped.
	IsEmpty() bool
}

// Pad keeps one record per ID. Safe for concurrent use.
type Pad[R Record[R]] struct {
	mu sync.RWMutex
	of map[string]*R
}

// New returns an empty pad.
func New[R Record[R]]() *Pad[R] { return &Pad[R]{of: map[string]*R{}} }

// Get returns a copy of the record of an ID, the zero record if there is none.
func (p *Pad[R]) Get(id string) (r R) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if kept := p.of[id]; kept != nil {
		return (*kept).Clone()
	}
	return r
}

// Change calls fn, which must not block, with the record of an ID.
func (p *Pad[R]) Change(id string, fn func(*R)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.of[id]
	if r == nil {
		r = new(R)
	}
	if fn(r); (*r).IsEmpty() {
		delete(p.of, id)
		return
	}
	p.of[id] = r
}

// Forget drops the record of an ID.
func (p *Pad[R]) Forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
}
