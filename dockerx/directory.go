package dockerx

import (
	"maps"
	"sync"
	"time"
)

const (
	// directorySweep is the size at which the directory looks for entries to drop.
	directorySweep = 1024
	// directoryGrace is how long after its end a network is remembered: its event may come late, or twice.
	directoryGrace = 10 * time.Minute
)

// directory remembers the labels of networks by ID, since the engine's events do not carry them. It knows the networks
// that this Engine created or listed.
type directory struct {
	mu      sync.Mutex
	entries map[string]entry
}

type entry struct {
	labels map[string]string
	gone   time.Time // zero while it exists
}

func (d *directory) add(id string, labels map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.entries == nil {
		d.entries = map[string]entry{}
	}
	d.entries[id] = entry{labels: maps.Clone(labels)}
}

// removed says that a network is gone, and drops those that went long ago.
func (d *directory) removed(id string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.entries[id]; ok && e.gone.IsZero() {
		e.gone = now
		d.entries[id] = e
	}
	if len(d.entries) < directorySweep {
		return
	}
	maps.DeleteFunc(d.entries, func(_ string, e entry) bool {
		return !e.gone.IsZero() && now.Sub(e.gone) > directoryGrace
	})
}

func (d *directory) labels(id string) (map[string]string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[id]
	return maps.Clone(e.labels), ok
}
