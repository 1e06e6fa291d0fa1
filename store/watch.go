package store

import (
	"sync"

	"github.com/agbox/agbox/store/internal/txlog"
)

// hub notifies subscribers that a history has new events, without blocking. Histories are named by their buckets.
type hub struct {
	mu    sync.Mutex
	subs  map[string]map[chan struct{}]bool
	feeds map[*Feed]bool
}

func newHub() *hub { return &hub{subs: map[string]map[chan struct{}]bool{}, feeds: map[*Feed]bool{}} }

// Watch returns a channel that receives one coalesced tick after commits that appended events to the sandbox; it is closed when the
// sandbox's history is purged. Call Watch before reading, to miss nothing. Any number of subscribers; each calls stop when done; stop may
// be called twice.
func (s *Store) Watch(id string) (changed <-chan struct{}, stop func()) {
	return s.hub.watch(prefixEvents + id)
}

func (h *hub) watch(bucket string) (changed <-chan struct{}, stop func()) {
	sub := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs[bucket] == nil {
		h.subs[bucket] = map[chan struct{}]bool{}
	}
	h.subs[bucket][sub] = true
	return sub, func() { h.remove(bucket, sub) }
}

func (h *hub) remove(bucket string, sub chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs[bucket], sub)
	if len(h.subs[bucket]) == 0 {
		delete(h.subs, bucket)
	}
}

// notify tells the subscribers about a committed operation. The config of a sandbox or an agent is only deleted by its purge or removal.
func (h *hub) notify(o op) {
	h.mu.Lock()
	for f := range h.feeds {
		f.observe(o)
	}
	h.mu.Unlock()
	switch {
	case o.Kind == txlog.Put && isHistory(o.Bucket):
		h.tick(o.Bucket)
	case o.Kind == txlog.Delete && o.Bucket == bucketConfig:
		h.end(prefixEvents + string(o.Key))
	case o.Kind == txlog.Delete && o.Bucket == bucketAgentConfig:
		h.end(prefixAgentEvents + string(o.Key))
	}
}

func (h *hub) tick(bucket string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs[bucket] {
		select {
		case sub <- struct{}{}:
		default: // a tick is pending already
		}
	}
}

func (h *hub) end(bucket string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs[bucket] {
		close(sub)
	}
	delete(h.subs, bucket)
}
