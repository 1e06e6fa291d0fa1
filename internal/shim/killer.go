package shim

import "time"

// reason is why the supervisor ends a running command.
type reason int

const (
	notEnding reason = iota
	byCancel
	byStop     // the container stops
	byLogLimit // the command exceeded its log limit
)

// The first and the longest pause between two rounds of KILL. The longest applies to a process that the kernel does not let die. The death
// of a child starts the next round at once.
const (
	killEvery    = 10 * time.Millisecond
	killEveryMax = 640 * time.Millisecond
)

// killer ends a process tree: TERM, then KILL after the grace period, repeated until no process is left. Its caller calls step when due has
// passed or a child has died, until no child is left.
type killer struct {
	tree   tree
	grace  time.Duration
	why    reason // of the first call of begin
	killed bool   // KILL was sent
	due    time.Time
	pause  time.Duration
}

// begin sends TERM, unless the grace period is 0, and makes KILL due after the grace period. Later calls do nothing.
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

// step sends KILL if due has passed.
func (k *killer) step(now time.Time) {
	if k.why == notEnding || now.Before(k.due) {
		return
	}
	k.killed = true
	k.tree.kill()
	k.pause = min(max(2*k.pause, killEvery), killEveryMax)
	k.due = now.Add(k.pause)
}

// hurry makes the next round of KILL due at once, if there was one: a process died and may have left orphans.
func (k *killer) hurry() {
	if k.killed {
		k.due, k.pause = time.Time{}, 0
	}
}
