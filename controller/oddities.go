package controller

import "sync"

// patience is how often an error of no known class is retried before it ends the attempt to make a sandbox run: with the
// back-off of the queue some 13 s, and longer when the engine had troubles of its own.
const patience = 8

// oddities count the errors of no known class since a sandbox's last pass without error. Errors of known classes do not
// count: an engine that is away or slow says nothing about the sandbox.
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

func (o *oddities) forget(sandboxID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.count, sandboxID)
}
