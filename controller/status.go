package controller

import "sync"

// statusBoard keeps the sentence that says what each sandbox waits for. It is for people: derived, and gone with the
// process.
type statusBoard struct {
	mu    sync.RWMutex
	lines map[string]string
}

// engineAway stands for the engine's problem, which changes without a pass.
const engineAway = "waiting for the engine"

func newStatusBoard() *statusBoard { return &statusBoard{lines: map[string]string{}} }

func (b *statusBoard) set(id, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if line == "" {
		delete(b.lines, id)
		return
	}
	b.lines[id] = line
}

func (b *statusBoard) get(id string) string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.lines[id]
}
