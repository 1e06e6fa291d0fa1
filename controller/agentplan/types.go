// Package agentplan decides: from the record of an agent, its observed process and output, and the time to the next step. It is pure. Any
// pass may be the first after a crash, may be repeated, may be late.
package agentplan

import (
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
)

// Record is the store's knowledge of an agent.
type Record struct {
	Run   storev1.AgentRun
	State agboxv1.AgentState
	// Attempts is the number of failed starts in a row. LastStart is the time of the newest start: not in the future, and after a jump of
	// the clock the time of the jump.
	Attempts  uint32
	LastStart time.Time
	// ReadyAt is when the newest incarnation became ready; zero: it did not.
	ReadyAt time.Time
	// ChangedAt is when it entered its state.
	ChangedAt      time.Time
	NeedsAttention bool
	// Parked: it is marked for automatic restart, because its sandbox, a drain or a move ends its process.
	Parked bool
	// ReadyIsProcess: it is ready as soon as its process has started.
	ReadyIsProcess bool
	// Restart says whether a process that ended on its own is restarted; the empty policy is RestartOnFailure.
	Restart      plan.RestartPolicy
	StartTimeout time.Duration
	// Interrupted: an interrupt of its turn is recorded.
	Interrupted bool
	// Queued: a prompt is ready to be claimed.
	Queued bool
	// Resumes: its newest process was started to resume a session of the program.
	Resumes bool
	// Nudged: a nudge of its process was recorded, or its turn was interrupted to save its work. The next prompt goes to the next
	// process: this one could receive the same prompt twice.
	Nudged bool
}

// Process is the observed state of the newest incarnation.
type Process int

// The kinds of Process.
const (
	// NoProcess: there was none, or nothing is known of it.
	NoProcess Process = iota
	// Waiting: its exec is recorded and has not started.
	Waiting
	// Alive: it runs.
	Alive
	// Ended: its end is recorded.
	Ended
)

// World is the result of an observation.
type World struct {
	// SandboxUp: the sandbox is READY and wanted to run. SandboxGone: it is deleted, being deleted or FAILED.
	SandboxUp, SandboxGone bool
	// UpSince is when the sandbox became READY, if it is.
	UpSince time.Time
	// SandboxWaits says for a human why the sandbox is not up.
	SandboxWaits string
	Process      Process
	// ExitCode, Lost, Cancelled and WithContainer are set if it Ended. Lost: its end was not observed. Cancelled: its end was requested.
	// WithContainer: it ended with its container, or the end was not observed.
	ExitCode                       int
	Lost, Cancelled, WithContainer bool
	// Stopped: it was Cancelled or ended WithContainer, and its sandbox is STOPPED, or about to be, because others stopped its container.
	Stopped bool
	// Error is why it could not start; empty otherwise.
	Error string
	// Killed says that and why the kernel killed it; empty: it did not.
	Killed string
	// Words is the last stderr line of a process that ended on its own, for a human; empty: none.
	Words string
	// Unread: output, or the end of the output, is not ingested.
	Unread bool
	// Undelivered: the inbox may lack its first bytes, the claimed prompt, a nudge or an interrupt.
	Undelivered bool
	// Frozen: the sandbox is paused with its processes, or about to be.
	Frozen bool
	// Draining: the gates are closed. Parking: a process that is not in a turn ends, to be restarted later.
	Draining, Parking bool
	// Seen: it was alive since the start of the daemon. Until then the state that an earlier drain recorded holds.
	Seen bool
	// Ending: its sandbox is to be stopped or deleted. InTurn: that waits for its turn, and for its work to be saved.
	Ending, InTurn bool
	// Terminated: others stop the container of a sandbox that should run, or have stopped it and the sandbox is not judged yet.
	Terminated bool
	// TurnEnds: its turn must end within TurnLeft, for the end of its sandbox or its container, or for a drain.
	TurnEnds bool
	TurnLeft time.Duration
	// Finishing: it is IDLE, but may still act on a nudge of its last turn, for this long if it prints nothing more.
	Finishing time.Duration
	// Nudge: its turn should be nudged to finish, and has not been.
	Nudge bool
	// Destination is the sandbox that it is to move to; empty: none.
	Destination string
	// Found: an earlier daemon started its process, and the adoption is not recorded.
	Found bool
	// Save is the outcome of saving the work of an interrupted turn.
	Save Save
	// Unsaved: the session of its program has changed since it was last saved, and can be saved now.
	Unsaved bool
	// Unrestored: its saved session is not in the files of its sandbox.
	Unrestored bool
	// Summarizing: a summary of the older turns is due before the next prompt.
	Summarizing bool
}

// Save is the progress of saving the work of an interrupted turn.
type Save string

// The values of Save; those that are recorded equal the strings in the record.
const (
	// NoSave: no save is needed, or none runs.
	NoSave Save = ""
	// SaveDue: a save is due or running.
	SaveDue  Save = "due"
	Saved    Save = "saved"
	NotSaved Save = "not saved"
)

// Kind names a step. The set is closed: it is a metric label.
type Kind string

// The steps. Each is idempotent.
const (
	// Wait: nothing, until the key is added or Next is over.
	Wait Kind = "wait"
	// Read ingests the output of the process.
	Read Kind = "read"
	// Spawn starts the next incarnation.
	Spawn Kind = "spawn"
	// Claim assigns the agent its next prompt.
	Claim Kind = "claim"
	// Deliver writes what the inbox lacks.
	Deliver Kind = "deliver"
	// Transition records a change of state.
	Transition Kind = "transition"
	// End ends the process.
	End Kind = "end"
	// Nudge requests a nudge of the present turn: a line that asks it to finish.
	Nudge Kind = "nudge"
	// Interrupt requests an interrupt of the present turn, so that its work can be saved.
	Interrupt Kind = "interrupt"
	// Keep saves the work of an interrupted turn.
	Keep Kind = "save"
	// Summarize requests a summary of the older turns for the next prompt.
	Summarize Kind = "summarize"
	// SaveSession copies the session of its program out of the sandbox.
	SaveSession Kind = "save_session"
	// RestoreSession copies it into the sandbox.
	RestoreSession Kind = "restore_session"
	// Move moves it to another sandbox.
	Move Kind = "move"
	// Adopt records that its process was found alive at the start of the daemon.
	Adopt Kind = "adopt"
	// Remove removes the agent's record.
	Remove Kind = "remove"
)

// Kinds lists every step.
func Kinds() []Kind {
	return []Kind{Wait, Read, Spawn, Claim, Deliver, Transition, End, Nudge, Interrupt, Keep, Summarize, SaveSession, RestoreSession, Move, Adopt, Remove}
}

// Plan is the next step; its commit enqueues the following pass.
type Plan struct {
	Kind Kind
	// Trigger and Reason belong to a Transition.
	Trigger agboxv1.AgentTrigger
	Reason  string
	// Parked is recorded with a Transition or a Spawn: the agent is restarted automatically.
	Parked bool
	// Saved is recorded with a Transition.
	Saved Save
	// Strike is recorded with a Transition: the process ended by itself.
	Strike bool
	// SessionLost is recorded with a Transition: the program's session can't be resumed.
	SessionLost bool
	// NeedsAttention is recorded with a Transition.
	NeedsAttention bool
	// Attempts is recorded with a Spawn: the failed starts in a row, including this one until it is ready.
	Attempts uint32
	// Next is the requeue delay; zero: none.
	Next time.Duration
	// Waiting says for a human what the agent waits for.
	Waiting string
}
