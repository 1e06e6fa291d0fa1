package store

import "sync"

// hub notifies subscribers that a sandbox has new events, without blocking.
type hub struct {
	mu   sync.Mutex
	subs map[string]map[chan struct{}]bool
}

func newHub() *hub { return &hub{subs: map[string]map[chan struct{}]bool{}} }

// Watch returns a channel that receives one coalesced tick after commits that appended events to the sandbox; it is closed when the
// sandbox's history is purged. Call Watch before reading, to miss nothing. Any number of subscribers; each calls stop when done; stop may
// be called twice.
func (s *Store) Watch(id string) (changed <-chan struct{}, stop func()) { return s.hub.watch(id) }

func (h *hub) watch(id string) (changed <-chan struct{}, stop func()) {
	sub := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs[id] == nil {
		h.subs[id] = map[chan struct{}]bool{}
	}
	h.subs[id][sub] = true
	return sub, func() { h.remove(id, sub) }
}

func (h *hub) remove(id string, sub chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs[id], sub)
	if len(h.subs[id]) == 0 {
		delete(h.subs, id)
	}
}

func (h *hub) tick(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs[id] {
		select {
		case sub <- struct{}{}:
		default: // a tick is pending already
		}
	}
}

func (h *hub) purged(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs[id] {
		close(sub)
	}
	delete(h.subs, id)
}
