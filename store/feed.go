package store

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/agbox/agbox/store/internal/txlog"
)

// Feed collects the IDs of the agents and sandboxes that have changed. It holds each ID once, so that a slow reader needs no more memory
// than the objects do, and no writer waits for it.
type Feed struct {
	changed chan struct{}

	mu                sync.Mutex
	agents, sandboxes map[string]bool
}

// WatchAll returns a Feed of all changes that are committed from now on. Call it before reading, to miss nothing; call stop when done.
func (s *Store) WatchAll() (f *Feed, stop func()) {
	f = &Feed{changed: make(chan struct{}, 1), agents: map[string]bool{}, sandboxes: map[string]bool{}}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.feeds[f] = true
	return f, func() {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		delete(s.hub.feeds, f)
	}
}

// NoteAgent adds an agent to all feeds: readers combine its record with facts that are not stored, and one of these has changed.
func (s *Store) NoteAgent(id string) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for f := range s.hub.feeds {
		f.add(f.agents, id)
	}
}

// Changed receives one coalesced tick after changes.
func (f *Feed) Changed() <-chan struct{} { return f.changed }

// Take returns the sorted IDs of everything that has changed since the last call.
func (f *Feed) Take() (agents, sandboxes []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	agents, sandboxes = slices.Sorted(maps.Keys(f.agents)), slices.Sorted(maps.Keys(f.sandboxes))
	clear(f.agents)
	clear(f.sandboxes)
	return agents, sandboxes
}

// observe adds the object of a committed operation.
func (f *Feed) observe(o op) {
	key := string(o.Key)
	switch o.Bucket {
	case bucketAgentStatus, bucketAgentConfig:
		f.add(f.agents, key)
	case bucketConfig, bucketDesired:
		f.add(f.sandboxes, key)
	default:
		if id, ok := strings.CutPrefix(o.Bucket, prefixEvents); ok && o.Kind == txlog.Put {
			f.add(f.sandboxes, id)
		}
	}
}

func (f *Feed) add(to map[string]bool, id string) {
	f.mu.Lock()
	to[id] = true
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default: // a tick is pending already
	}
}
