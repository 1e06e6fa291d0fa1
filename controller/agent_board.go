package controller

import (
	"sync"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/agent/agentstate"
)

// agentBoard keeps the sentence that says what each agent waits for, which have been looked at since the start, and what each
// was told. Derived, and gone with the process.
type agentBoard struct {
	mu       sync.RWMutex
	lines    map[string]string
	verified map[string]bool
	messages map[string]string
	// helpers are since when commands are waited for, by agent and exec, and prompts the newest that was counted as given.
	helpers map[string]map[string]time.Time
	prompts map[string]string
	// alive is the newest exec of each agent that was seen running.
	alive map[string]string
	// own is the newest exec of each agent that this daemon has started.
	own map[string]string
	// saving are the agents whose work a drain saves.
	saving map[string]bool
	// transitions are how many of each agent are counted.
	transitions map[string]uint64
}

func newAgentBoard() *agentBoard {
	return &agentBoard{
		lines: map[string]string{}, verified: map[string]bool{}, messages: map[string]string{},
		helpers: map[string]map[string]time.Time{}, prompts: map[string]string{}, alive: map[string]string{}, own: map[string]string{}, saving: map[string]bool{}, transitions: map[string]uint64{},
	}
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

// start notes that this daemon has started a process, and started reports whether it did.
func (b *agentBoard) start(id, execID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.own[id] = execID
}

func (b *agentBoard) started(id, execID string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.own[id] == execID
}

// see notes that an agent's process runs, and saw reports whether it ever did since the start.
func (b *agentBoard) see(id, execID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alive[id] = execID
}

func (b *agentBoard) saw(id, execID string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.alive[id] == execID
}

// save notes whether a drain saves an agent's work, and saves reports that.
func (b *agentBoard) save(id string, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if delete(b.saving, id); on {
		b.saving[id] = true
	}
}

func (b *agentBoard) saves(id string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.saving[id]
}

func (b *agentBoard) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lines, id)
	delete(b.verified, id)
	delete(b.messages, id)
	delete(b.prompts, id)
	delete(b.alive, id)
	delete(b.own, id)
	delete(b.transitions, id)
	delete(b.helpers, id)
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

// toldPrompt notes that a prompt was given, and reports whether it was noted before.
func (b *agentBoard) toldPrompt(id string, p *storev1.AgentPrompt) bool {
	key := agentstate.ExecID(p.GetPromptId(), p.GetIncarnation())
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.prompts[id] == key
	b.prompts[id] = key
	return known
}

// beginHelper notes since when a command is waited for, once.
func (b *agentBoard) beginHelper(id, execID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.helpers[id] == nil {
		b.helpers[id] = map[string]time.Time{}
	}
	if b.helpers[id][execID].IsZero() {
		b.helpers[id][execID] = time.Now() // the monotonic clock: nobody sets it
	}
}

// helperTook is how long a command has been waited for; 0 before it was begun.
func (b *agentBoard) helperTook(id, execID string) time.Duration {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if at := b.helpers[id][execID]; !at.IsZero() {
		return max(time.Since(at), 1)
	}
	return 0
}

// counted notes that n transitions of an agent are counted, and returns how many were before; not known: none of them was this
// daemon's to count.
func (b *agentBoard) counted(id string, n uint64) (before uint64, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, known = b.transitions[id]
	b.transitions[id] = n
	return before, known
}
