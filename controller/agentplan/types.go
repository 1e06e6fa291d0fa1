package agentplan

import (
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Record is what the store knows of an agent.
type Record struct {
	Run   storev1.AgentRun
	State agboxv1.AgentState
	// Incarnation is the number of the newest process; 0: there was none.
	Incarnation uint64
	// Attempts is the number of starts in a row that failed, and LastStart when the newest was: not ahead of now, and after a jump
	// of the clock the time of the jump.
	Attempts  uint32
	LastStart time.Time
	// ReadyAt is when the newest incarnation became ready; zero: it did not.
	ReadyAt time.Time
	// ChangedAt is since when it has been in its state.
	ChangedAt      time.Time
	NeedsAttention bool
	// Parked: it comes back by itself.
	Parked bool
	// ReadyIsProcess: it is ready when its process was started.
	ReadyIsProcess bool
	Restart        RestartPolicy
	StartTimeout   time.Duration
	// Interrupted: its turn is to be interrupted, and that is on record.
	Interrupted bool
	// Queued: a prompt may be given to it.
	Queued bool
	// Resumes: its newest process was to go on with a session of the program's own.
	Resumes bool
	// Nudged: its process was told to finish, or its turn was interrupted so that its work is saved, and it gets no further prompt: it
	// would be told the same twice.
	Nudged bool
}

// RestartPolicy says what follows when the process ends by itself.
type RestartPolicy string

// The policies. The empty one is RestartOnFailure.
const (
	RestartNever     RestartPolicy = "never"
	RestartOnFailure RestartPolicy = "on-failure"
	RestartAlways    RestartPolicy = "always"
)

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
	// Ended: its end is on record.
	Ended
)

// World is what was observed.
type World struct {
	// SandboxUp: the sandbox is READY and wanted so. SandboxGone: it is deleted, being deleted or FAILED.
	SandboxUp, SandboxGone bool
	// UpSince is since when it is READY, if it is.
	UpSince time.Time
	// SandboxWaits says why the sandbox is not up, for a person.
	SandboxWaits string
	Process      Process
	// ExitCode, Lost and Cancelled are of one that Ended: Lost, nobody saw its end; Cancelled, somebody asked for it.
	ExitCode        int
	Lost, Cancelled bool
	// Error is why it could not start; empty otherwise.
	Error string
	// Words are the last that a process which ended by itself said on its stderr, for a person; empty: none.
	Words string
	// Unread: there is output, or the end of it, that was not taken in.
	Unread bool
	// Undelivered: something may be missing in the inbox: what it begins with, the claimed prompt, an interrupt.
	Undelivered bool
	// Frozen: the sandbox is paused, with its processes, or about to be.
	Frozen bool
	// Draining: the gates are closed. Parking: what is not in a turn is to end, to come back later.
	Draining, Parking bool
	// Seen: it was alive since the start of the daemon. What a drain before that said of it holds until then.
	Seen bool
	// Ending: its sandbox is to stop or to go. InTurn: that waits for its turn and for its work to be saved, the turn for TurnLeft.
	Ending, InTurn bool
	TurnLeft       time.Duration
	// Finishing: it is IDLE, and may still do what it was told with its last turn, for so long if nothing more is heard.
	Finishing time.Duration
	// Nudge: its turn is to be told to finish, and was not.
	Nudge bool
	// Destination is the sandbox that it is to move to; empty: none.
	Destination string
	// Found: its process was not started by this daemon, and that it was found is not on record.
	Found bool
	// Save is the outcome of saving the work of an interrupted turn.
	Save Save
	// Summarizing: a summary of the past is to be made before the next prompt.
	Summarizing bool
}

// Save is how far the work of a turn that was cut off is saved.
type Save string

// The values of Save; those that are recorded are the record's own words.
const (
	// NoSave: nobody saves it, or nobody needs to.
	NoSave Save = ""
	// SaveDue: it is to be saved, or is being.
	SaveDue  Save = "due"
	Saved    Save = "saved"
	NotSaved Save = "not saved"
)

// Kind names a step. The set is closed: it is a metric label.
type Kind string

// The steps. Each is idempotent.
const (
	// Wait: nothing, until something happens or Next is over.
	Wait Kind = "wait"
	// Read takes in what the process has printed.
	Read Kind = "read"
	// Spawn starts another incarnation.
	Spawn Kind = "spawn"
	// Claim gives the agent its next prompt.
	Claim Kind = "claim"
	// Deliver writes into the inbox what is not there yet.
	Deliver Kind = "deliver"
	// Transition records a change of state.
	Transition Kind = "transition"
	// End has the process end.
	End Kind = "end"
	// Nudge wants the present turn to be told to finish.
	Nudge Kind = "nudge"
	// Freeze wants the present turn to be interrupted.
	Freeze Kind = "freeze"
	// Keep saves the work of a turn that was cut off.
	Keep Kind = "save"
	// Summarize has the older turns summarized for the next prompt.
	Summarize Kind = "summarize"
	// Move gives it to another sandbox.
	Move Kind = "move"
	// Adopt records that its process was found alive at the start of the daemon.
	Adopt Kind = "adopt"
	// Remove forgets the agent.
	Remove Kind = "remove"
)

// Kinds lists every step.
func Kinds() []Kind {
	return []Kind{Wait, Read, Spawn, Claim, Deliver, Transition, End, Nudge, Freeze, Keep, Summarize, Move, Adopt, Remove}
}

// Plan is the one step that comes next; its effect brings about the pass after it.
type Plan struct {
	Kind Kind
	// Trigger and Reason are of a Transition.
	Trigger agboxv1.AgentTrigger
	Reason  string
	// Parked: what a Transition or a Spawn says of coming back by itself.
	Parked bool
	// Saved is recorded with a Transition.
	Saved Save
	// SessionLost is recorded with a Transition: the program's own session can't be resumed.
	SessionLost bool
	// NeedsAttention is recorded with a Transition.
	NeedsAttention bool
	// Attempts is recorded with a Spawn: how many have come to nothing, this one included until it is ready.
	Attempts uint32
	// Next is when to look again; zero: only when something happens.
	Next time.Duration
	// Waiting says what it waits for, for a person.
	Waiting string
}
