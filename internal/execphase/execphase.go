// Package execphase has the states of an exec according to its files. They need neither the engine nor the store.
package execphase

import "fmt"

// Phase is the state of an exec according to its journal and its lock.
type Phase int

// The phases.
const (
	// NotStarted: there is no journal. The first to create it decides whether the command ever runs.
	NotStarted Phase = iota
	// Running: the journal says started, and the lock is held.
	Running
	// Lost: the journal says started, the lock is free, and no end is recorded: the supervisor was killed. No process of the exec is left,
	// whether or not the container still runs.
	Lost
	// Ended: the journal holds the end, which is final.
	Ended
	// Closed: the daemon closed the journal before the command started. It never ran and never will.
	Closed
	// Foreign: the path of the journal holds something that is not a journal of this exec: another nonce, forged, unreadable. Only a process
	// in the container can have written it. It is no result, and the exec can never start.
	Foreign
)

// String returns the name of p in lower case.
func (p Phase) String() string {
	names := [...]string{"not started", "running", "lost", "ended", "closed", "foreign"}
	if p < NotStarted || p > Foreign {
		return fmt.Sprintf("phase(%d)", int(p))
	}
	return names[p]
}
