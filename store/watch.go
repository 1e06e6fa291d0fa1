package store

import "sync"

// hub notifies subscribers that a sandbox has new events, without blocking.
type hub struct {
	mu   sync.Mutex
	subs map[string]map[*subscriber]bool
}

type subscriber struct{ ch chan struct{} }

func newHub() *hub { return &hub{subs: map[string]map[*subscriber]bool{}} }

// Watch returns a channel that receives one coalesced tick after commits that appended events to the sandbox; it is closed when the
// sandbox's history is purged. Call Watch before reading, to miss nothing. Any number of subscribers; each calls stop when done; stop may
// be called twice.
func (s *Store) Watch(id string) (changed <-chan struct{}, stop func()) {
	sub := &subscriber{ch: make(chan struct{}, 1)}
	s.hub.add(id, sub)
	return sub.ch, func() { s.hub.remove(id, sub) }
}

func (h *hub) add(id string, sub *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs[id] == nil {
		h.subs[id] = map[*subscriber]bool{}
	}
	h.subs[id][sub] = true
}

func (h *hub) remove(id string, sub *subscriber) {
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
		case sub.ch <- struct{}{}:
		default: // a tick is pending already
		}
	}
}

func (h *hub) purged(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs[id] {
		close(sub.ch)
	}
	delete(h.subs, id)
}
