package sandbox

import (
	"sync"

	"github.com/agbox/agbox/dockerx"
)

// killBoard keeps which containers were killed through the engine since their last start, from the engine's events. It misses a kill whose
// event came while agboxd was not subscribed and which the engine no longer replays.
type killBoard struct {
	mu     sync.Mutex
	killed map[string]bool // by container ID
}

func newKillBoard() *killBoard { return &killBoard{killed: make(map[string]bool)} }

func (b *killBoard) note(e dockerx.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case e.Action == dockerx.ActionKill && e.Signal == 9:
		b.killed[e.ID] = true
	case e.Action == dockerx.ActionStart, e.Action == dockerx.ActionDestroy:
		delete(b.killed, e.ID)
	}
}

func (b *killBoard) has(containerID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.killed[containerID]
}
