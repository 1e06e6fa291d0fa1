package controller

import "sync"

// keySet is a set of keys that any goroutine may use.
type keySet struct {
	mu   sync.Mutex
	keys map[string]bool
}

func newKeySet() *keySet { return &keySet{keys: map[string]bool{}} }

func (s *keySet) add(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = true
}

func (s *keySet) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
}

// take empties the set.
func (s *keySet) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]string, 0, len(s.keys))
	for key := range s.keys {
		list = append(list, key)
	}
	clear(s.keys)
	return list
}
