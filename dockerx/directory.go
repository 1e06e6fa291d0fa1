package dockerx

import (
	"maps"
	"sync"
	"time"
)

const (
	// directorySweep is the number of entries from which on the directory drops old ones.
	directorySweep = 1024
	// directoryGrace is how long the directory keeps a removed network: its event may arrive late, or twice.
	directoryGrace = 10 * time.Minute
)

// directory keeps the labels of networks by ID, since the engine's events do not carry them. It has the networks that this
// Engine created or listed.
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

// removed records that a network was removed, and drops the networks removed more than directoryGrace ago.
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
