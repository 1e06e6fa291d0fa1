package controller

import (
	"sync"

	"github.com/agbox/agbox/dockerx"
)

// killBoard keeps which containers somebody killed through the engine since their last start, as its events tell. It is
// evidence only: what came while nobody listened, and is not among the events that the engine still has, is missing.
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
