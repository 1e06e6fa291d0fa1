package shim

import "time"

// reason is why a running command is being ended.
type reason int

const (
	notEnding reason = iota
	byCancel
	byStop     // the container stops
	byLogLimit // the command wrote more than it may
)

// Pauses between two rounds of KILL: the first, and the longest, for a process that the kernel does not let die. The death
// of a child brings the next round on at once.
const (
	killEvery    = 10 * time.Millisecond
	killEveryMax = 640 * time.Millisecond
)

// killer ends a process tree: TERM, then KILL after the grace, again and again until nothing is left. Its user calls step
// whenever due has come or a child has died, until no child is left.
type killer struct {
	tree   tree
	grace  time.Duration
	why    reason // the first one given stays
	killed bool   // KILL was sent
	due    time.Time
	pause  time.Duration
}

// begin sends TERM. What was begun is not begun again.
func (k *killer) begin(why reason, now time.Time) {
	if k.why != notEnding {
		return
	}
	k.why = why
	if k.grace > 0 {
		k.tree.terminate()
	}
	k.due = now.Add(k.grace)
}

// step sends KILL if it is time.
func (k *killer) step(now time.Time) {
	if k.why == notEnding || now.Before(k.due) {
		return
	}
	k.killed = true
	k.tree.kill()
	k.pause = min(max(2*k.pause, killEvery), killEveryMax)
	k.due = now.Add(k.pause)
}

// hurry brings the next round of KILL on: a process died and may have left orphans.
func (k *killer) hurry() {
	if k.killed {
		k.due, k.pause = time.Time{}, 0
	}
}
