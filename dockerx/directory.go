package dockerx

import (
	"maps"
	"sync"
	"time"
)

// directoryGrace is how long the directory keeps a removed network: its event may arrive late, or twice.
const directoryGrace = 10 * time.Minute

// directory keeps the labels of networks by ID, since the engine's events do not carry them. It has the networks that this
// Engine created or listed.
type directory struct{ byID sync.Map } // of *map[string]string, each from one add

func (d *directory) add(id string, labels map[string]string) {
	labels = maps.Clone(labels)
	d.byID.Store(id, &labels)
}

// removed drops a removed network after directoryGrace, unless it is added again meanwhile.
func (d *directory) removed(id string) {
	labels, _ := d.byID.Load(id)
	time.AfterFunc(directoryGrace, func() { d.byID.CompareAndDelete(id, labels) })
}

func (d *directory) labels(id string) (map[string]string, bool) {
	labels, ok := d.byID.Load(id)
	if !ok {
		return nil, false
	}
	return maps.Clone(*labels.(*map[string]string)), true
}
