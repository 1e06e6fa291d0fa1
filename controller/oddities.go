package controller

import (
	"maps"
	"strings"
	"sync"
)

// patience is how often an error of no known class is retried before it ends the attempt to make a sandbox run: with the
// back-off of the queue some 13 s, and longer when the engine had troubles of its own.
const patience = 8

// patienceAfterDeath is the same for a sandbox that the engine's or the host's death ended: some 6 minutes. Its user did
// nothing wrong, and a host that has just booted is not complete.
const patienceAfterDeath = 20

// oddities count the errors that may be for good since the last pass without error over a sandbox, or for ID/SERVICE since
// that service's last one. Others do not count: an engine that is away or slow says nothing about the sandbox.
type oddities struct {
	mu    sync.Mutex
	count map[string]int
}

func newOddities() *oddities { return &oddities{count: map[string]int{}} }

// again counts one more and returns how many there are.
func (o *oddities) again(sandboxID string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count[sandboxID]++
	return o.count[sandboxID]
}

// forgetAll forgets a sandbox and its services.
func (o *oddities) forgetAll(sandboxID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.count, func(key string, _ int) bool {
		id, _, _ := strings.Cut(key, "/")
		return id == sandboxID
	})
}

func (o *oddities) forget(sandboxID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.count, sandboxID)
}
