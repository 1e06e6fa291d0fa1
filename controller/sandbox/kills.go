package sandbox

import (
	"sync"

	"github.com/agbox/agbox/dockerx"
)

// killBoard keeps which containers were killed through the engine since their last start, by the engine's events. A kill is missing
// if its event came while agboxd did not listen and the engine has dropped it since.
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
