package controller

import "sync"

// agentBoard keeps the sentence that says what each agent waits for, which have been looked at since the start, and what each
// was told. Derived, and gone with the process.
type agentBoard struct {
	mu       sync.RWMutex
	lines    map[string]string
	verified map[string]bool
	messages map[string]string
}

func newAgentBoard() *agentBoard {
	return &agentBoard{lines: map[string]string{}, verified: map[string]bool{}, messages: map[string]string{}}
}

func (b *agentBoard) set(id, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if line == "" {
		delete(b.lines, id)
		return
	}
	b.lines[id] = line
}

// verify notes that a pass has found out what there is of an agent.
func (b *agentBoard) verify(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verified[id] = true
}

func (b *agentBoard) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lines, id)
	delete(b.verified, id)
	delete(b.messages, id)
}

// tell notes that an agent was told a message, and told reports whether the last one was this.
func (b *agentBoard) tell(id, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages[id] = message
}

func (b *agentBoard) told(id, message string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.messages[id] == message
}

func (b *agentBoard) get(id string) (line string, unverified bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.lines[id], !b.verified[id]
}
