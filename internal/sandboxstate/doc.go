// Package sandboxstate is the table of the states of a sandbox, pure: what each state means, and which events lead from which state to
// which. The store refuses every other transition. The lists of states elsewhere (metrics, checks, docs/reference.md) come from here.
//
//	                    (none)   PENDING   READY     PAUSED    STOPPED   FAILED    DELETING
//	ACCEPTED            PENDING  -         PENDING   PENDING   PENDING   PENDING   -
//	REHYDRATED          any live -         -         -         -         -         -
//	PREPARING           -        =         -         -         -         -         -
//	SERVICE_READY       -        =         =         -         -         -         -
//	SERVICE_FAILED      -        =         =         -         -         -         -
//	READY               -        READY     -         -         -         -         -
//	RESTARTED           -        -         =         -         -         -         -
//	PAUSE_REQUESTED     -        -         =         -         -         -         -
//	PAUSED              -        -         PAUSED    =         -         -         -
//	STOP_REQUESTED      -        -         =         =         -         -         -
//	STOPPED             -        -         STOPPED   STOPPED   -         -         -
//	FAILED              -        FAILED    FAILED    FAILED    FAILED    -         -
//	RECOVERED           -        -         -         -         -         before    -
//	DELETE_REQUESTED    -        DELETING  DELETING  DELETING  DELETING  DELETING  -
//	DELETED             -        -         -         -         -         -         DELETED
//
// "-" is illegal, "=" keeps the state. "before" is a state that the sandbox may have failed in: PENDING, READY, PAUSED or STOPPED. Every
// other event names no state; it may follow any event of a sandbox that exists and is not DELETED.
package sandboxstate
