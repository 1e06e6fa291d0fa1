package dnsfilter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// askedFor is how long a name is kept after the last question for it.
	askedFor = time.Hour
	// maxAsked bounds the names of a sandbox that are kept, answered and refused ones apart, and maxAskedAddrs the addresses of one.
	maxAsked      = 256
	maxAskedAddrs = 16
	// askedSuffix is that of the file with the names of a bridge, which the filter writes at most each askedEvery, and reads when it starts.
	askedSuffix = ".asked"
	askedEvery  = 2 * time.Second
)

// Asked is a name that a sandbox asked for.
type Asked struct {
	Name string `json:"name"`
	// Refused: the policy does not let the name through. Otherwise it was answered, with Addrs, the newest ones last.
	Refused bool         `json:"refused,omitempty"`
	Addrs   []netip.Addr `json:"addrs,omitempty"`
	Count   uint64       `json:"count"`
	Last    time.Time    `json:"last"`
}

// Asked returns the names that the sandbox of a bridge asked for in the last hour, some seconds late.
func (d Dir) Asked(bridge string) ([]Asked, error) {
	body, err := os.ReadFile(d.path(bridge + askedSuffix))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var list []Asked
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("read the names that %s asked for: %w", bridge, err)
	}
	now := time.Now()
	return slices.DeleteFunc(list, func(a Asked) bool { return now.Sub(a.Last) > askedFor }), nil
}

// askedNames are the names that a sandbox asked for.
type askedNames struct {
	mu      sync.Mutex
	refused map[string]*Asked
	allowed map[string]*Asked
	changed bool
	pruned  time.Time
}

func (n *askedNames) of(refused bool) map[string]*Asked {
	if n.refused == nil {
		n.refused, n.allowed = map[string]*Asked{}, map[string]*Asked{}
	}
	if refused {
		return n.refused
	}
	return n.allowed
}

// add counts a question. Beyond the bound new names are not kept.
func (n *askedNames) add(name string, refused bool, addrs []netip.Addr, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := n.of(refused)
	if names[name] == nil && len(names) >= maxAsked && now.Sub(n.pruned) > time.Second {
		n.prune(now)
	}
	if names[name] == nil {
		if len(names) >= maxAsked {
			return
		}
		names[name] = &Asked{Name: name, Refused: refused}
	}
	a := names[name]
	a.Count, a.Last, n.changed = a.Count+1, now, true
	for _, addr := range addrs {
		a.Addrs = append(slices.DeleteFunc(a.Addrs, func(old netip.Addr) bool { return old == addr }), addr)
	}
	a.Addrs = slices.Clone(a.Addrs[max(0, len(a.Addrs)-maxAskedAddrs):])
}

func (n *askedNames) prune(now time.Time) {
	n.pruned = now
	for _, names := range []map[string]*Asked{n.refused, n.allowed} {
		for name, a := range names {
			if now.Sub(a.Last) > askedFor {
				delete(names, name)
			}
		}
	}
}

// take returns the names, sorted, or false if there was no question since the last call.
func (n *askedNames) take(now time.Time) (list []Asked, changed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.changed {
		return nil, false
	}
	n.changed = false
	n.prune(now)
	for _, names := range []map[string]*Asked{n.refused, n.allowed} {
		for _, a := range names {
			list = append(list, *a)
		}
	}
	slices.SortFunc(list, func(a, b Asked) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Last.Compare(b.Last)) })
	return list, true
}

// load begins with the names that a former filter has written. Those that cannot be read are lost.
func (n *askedNames) load(list []Asked) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range list {
		if names := n.of(a.Refused); len(names) < maxAsked {
			names[a.Name] = &a
		}
	}
}

// writeAsked writes the names that a sandbox asked for, if there are new questions and the last time is a while ago.
func (s *sandbox) writeAsked() {
	now := time.Now()
	if now.Sub(s.askedAt) < askedEvery {
		return
	}
	list, changed := s.asked.take(now)
	if !changed {
		return
	}
	s.askedAt = now
	body, err := json.Marshal(list)
	if err == nil {
		err = s.f.Dir.replace(s.bridge+askedSuffix, body)
	}
	if err != nil {
		s.f.Log.Error("the names that a sandbox asked for are not shown", "bridge", s.bridge, "err", err)
	}
}
