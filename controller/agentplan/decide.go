package agentplan

import (
	"fmt"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/backoff"
)

// Bounds.
const (
	// MaxAttempts is how many starts in a row may fail.
	MaxAttempts = 5
	// HealthyAfter is how long an agent must be ready for its count of attempts to be reset.
	HealthyAfter = 10 * time.Minute
	// helperLook is the requeue delay while an agent waits for a helper command, in case the event of its end is lost.
	helperLook = time.Second
	// verdictLook is the requeue delay of an agent whose container ended, until its sandbox is judged. The verdict adds the key as well.
	verdictLook = time.Second
	// InterruptGrace is how long a turn may still run after an interrupt before its process is ended.
	InterruptGrace = 5 * time.Second
)

// Decide returns what to do for one agent.
//
//	unread output                       read it: nothing is judged before that
//	delete                              end the process, then remove the agent
//	delete, with its sandbox            first grant the turn the time that a stop of the sandbox grants
//	ended with its container            wait for the verdict on its sandbox; parked if others stopped it
//	ended by its sandbox, in a turn     save the work, then as in the next row
//	ended, its session is not saved     save the session, then as in the next rows
//	ended by its sandbox or a drain     STOPPED, and restarted automatically
//	ended by request                    STOPPED
//	ended with 0                        EXITED: STOPPED, or FAILED when it was not ready or in a turn
//	ended otherwise, or lost            CRASHED: FAILED
//	no process, though it should run    RECONCILIATION: FAILED
//	stopped or failed, and alive        end that process
//	no process, to move                 move to the other sandbox
//	stop                                end the process; STOPPED
//	run, its sandbox, a drain or others end it
//	                                    end the process; one in a turn has a while to finish first
//	run, to move                        end the process, after its turn; the agent restarts in the other sandbox
//	run, found alive by this daemon     record the adoption
//	run, starting                       ready when its protocol or its process says so; FAILED after start_timeout
//	run, idle, its session not saved    save the session of its program: a turn has ended
//	run, idle                           the next prompt, unless the gates are closed
//	run, alive                          write what its inbox lacks; interrupt its turn before the time of the turn is over
//	run, busy                           nothing
//	run, not started, session elsewhere put the saved session into its sandbox
//	run, not started or ended           start it by its policy, with backoff; after 5 attempts it needs attention
func Decide(r Record, w World, now time.Time) Plan {
	switch {
	case w.Unread:
		return Plan{Kind: Read}
	case r.Run == storev1.AgentRun_AGENT_RUN_DELETE && !w.InTurn:
		return remove(w)
	case Lives(r.State) && (w.Process == Ended || w.Process == NoProcess):
		return ended(r, w, now)
	case !Lives(r.State) && (w.Process == Alive || w.Process == Waiting):
		return w.end("ending a process that should be gone")
	case !Lives(r.State) && w.Destination != "":
		return Plan{Kind: Move}
	case r.Run == storev1.AgentRun_AGENT_RUN_STOP:
		return stop(r, w)
	case Lives(r.State) && w.endsNow(r):
		return w.end("parking")
	case w.Destination != "" && r.State != agboxv1.AgentState_AGENT_STATE_BUSY && w.Finishing == 0:
		return w.end("moving to another sandbox")
	case Lives(r.State) && w.Process == Alive && w.Found:
		return Plan{Kind: Adopt}
	case w.Nudge:
		return Plan{Kind: Nudge}
	case r.State == agboxv1.AgentState_AGENT_STATE_BUSY && w.TurnEnds && w.TurnLeft <= InterruptGrace && !r.Interrupted:
		return Plan{Kind: Interrupt}
	case Lives(r.State) && w.Undelivered:
		return Plan{Kind: Deliver}
	}
	switch r.State {
	case agboxv1.AgentState_AGENT_STATE_STARTING:
		return starting(r, w, now)
	case agboxv1.AgentState_AGENT_STATE_IDLE:
		return idle(r, w)
	case agboxv1.AgentState_AGENT_STATE_BUSY:
		return busy(r, w)
	}
	return bringBack(r, w, now)
}

// endsNow reports whether a process must end now although the agent is to run again later. A process in a turn ends once its time is over.
func (w World) endsNow(r Record) bool {
	switch {
	case r.State == agboxv1.AgentState_AGENT_STATE_BUSY, w.TurnEnds && w.Finishing > 0:
		return w.TurnEnds && w.TurnLeft <= 0
	case w.Finishing > 0:
		return false
	}
	return w.Parking || w.Ending || w.Terminated
}

func busy(r Record, w World) Plan {
	switch {
	case w.Ending:
		next := w.TurnLeft
		if next > InterruptGrace { // until its interrupt, else until its end
			next -= InterruptGrace
		}
		return Plan{Kind: Wait, Next: next, Waiting: "its sandbox stops once it has finished, or soon"}
	case w.TurnEnds:
		return Plan{Kind: Wait, Next: w.TurnLeft, Waiting: w.endsFor() + "; its process is ended soon"}
	case w.Destination != "":
		return wait("it moves to another sandbox when its turn has ended")
	case r.Interrupted:
		return wait("it was asked to end its turn; `agbox agent stop` ends its process")
	}
	return wait("")
}

func (w World) endsFor() string {
	if w.Terminated {
		return w.SandboxWaits
	}
	return "draining"
}

// Lives reports whether an agent in this state has a process, as far as its record says.
func Lives(s agboxv1.AgentState) bool {
	switch s {
	case agboxv1.AgentState_AGENT_STATE_STARTING, agboxv1.AgentState_AGENT_STATE_IDLE, agboxv1.AgentState_AGENT_STATE_BUSY:
		return true
	}
	return false
}

func wait(why string) Plan { return Plan{Kind: Wait, Waiting: why} }

// end ends the process. A frozen process ends only once it is thawed.
func (w World) end(why string) Plan {
	if w.Frozen {
		why = "its process ends when its sandbox is resumed"
	}
	return Plan{Kind: End, Waiting: why}
}

func transition(tr agboxv1.AgentTrigger, reason string) Plan {
	return Plan{Kind: Transition, Trigger: tr, Reason: reason}
}

func remove(w World) Plan {
	if w.Process == Alive || w.Process == Waiting {
		return w.end("deleting")
	}
	if w.Save == SaveDue {
		return w.keep()
	}
	return Plan{Kind: Remove}
}

func stop(r Record, w World) Plan {
	switch r.State {
	case agboxv1.AgentState_AGENT_STATE_STOPPED:
		return wait("")
	case agboxv1.AgentState_AGENT_STATE_PENDING, agboxv1.AgentState_AGENT_STATE_FAILED:
		return transition(agboxv1.AgentTrigger_AGENT_TRIGGER_USER_TERMINATED, "stopped on request")
	}
	return w.end("stopping")
}

func starting(r Record, w World, now time.Time) Plan {
	if r.ReadyIsProcess && w.Process == Alive {
		return transition(agboxv1.AgentTrigger_AGENT_TRIGGER_CONNECTED, "its process was started")
	}
	if !w.SandboxUp {
		return wait(w.SandboxWaits) // a frozen process cannot become ready
	}
	since := r.LastStart
	if w.UpSince.After(since) {
		since = w.UpSince
	}
	left := since.Add(r.StartTimeout).Sub(now)
	if left <= 0 {
		return r.unresumed(r.attention(transition(agboxv1.AgentTrigger_AGENT_TRIGGER_START_TIMED_OUT,
			fmt.Sprintf("it was not ready within %s (start_timeout)", r.StartTimeout)), now))
	}
	return Plan{Kind: Wait, Next: left, Waiting: "waiting for it to be ready"}
}

func idle(r Record, w World) Plan {
	switch {
	case w.Process != Alive:
		return wait("waiting for its process")
	case w.Finishing > 0:
		next := w.Finishing
		if w.TurnEnds {
			next = min(next, w.TurnLeft)
		}
		return Plan{Kind: Wait, Next: next, Waiting: "waiting for it to finish its turn"}
	case w.Unsaved:
		return saveSession()
	case r.Queued && w.Draining:
		return wait("draining; prompts wait")
	case r.Queued && !w.SandboxUp:
		return wait(w.SandboxWaits)
	case r.Queued && r.Nudged:
		return w.end("it was nudged to finish; its next process gets the next prompt")
	case r.Queued && w.Summarizing:
		return Plan{Kind: Summarize, Next: helperLook, Waiting: "summarizing its past"}
	case r.Queued:
		return Plan{Kind: Claim}
	}
	return wait("")
}

func saveSession() Plan { return Plan{Kind: SaveSession, Waiting: "saving the session of its program"} }

// bringBack starts an agent that should run and has no process.
func bringBack(r Record, w World, now time.Time) Plan {
	pause, ok := r.pause()
	switch {
	case w.SandboxGone:
		return wait(w.SandboxWaits)
	case r.NeedsAttention:
		return wait(fmt.Sprintf("it failed to start %d times in a row; `agbox agent start` tries again", MaxAttempts))
	case !ok:
		return wait("")
	case w.Draining:
		return wait("draining; it restarts after the drain")
	case !w.SandboxUp:
		return wait(w.SandboxWaits)
	}
	if left := r.ChangedAt.Add(pause).Sub(now); left > 0 && left <= pause {
		return Plan{Kind: Wait, Next: left, Waiting: fmt.Sprintf("it is started again in %s", left.Round(time.Second))}
	}
	if w.Unrestored {
		return Plan{Kind: RestoreSession, Waiting: "putting the session of its program into its sandbox"}
	}
	if r.Parked { // its last process did not fail
		return Plan{Kind: Spawn, Attempts: 1}
	}
	return Plan{Kind: Spawn, Attempts: r.attempts(r.ChangedAt) + 1}
}

// pause returns the delay between its end and its restart; not ok: it is not restarted.
func (r Record) pause() (d time.Duration, ok bool) {
	switch {
	case r.State == agboxv1.AgentState_AGENT_STATE_PENDING, r.Parked:
		return 0, true
	case r.Restart == plan.RestartNever:
		return 0, false
	case r.State == agboxv1.AgentState_AGENT_STATE_STOPPED && r.Restart != plan.RestartAlways:
		return 0, false
	}
	return backOff.After(r.attempts(r.ChangedAt)), true
}

// backOff is the delay after failed attempts in a row.
var backOff = backoff.Backoff{Base: time.Second, Max: 5 * time.Minute}

// WaitsForRoom reports whether a plan waits while the disk is full: it adds records, and no stop or delete waits for it. Unread output
// stays in its log.
func (p Plan) WaitsForRoom(r Record, w World) bool {
	switch p.Kind {
	case Read, Spawn, Claim, Summarize, SaveSession:
		return r.Run == storev1.AgentRun_AGENT_RUN_RUN && !w.Ending && !w.SandboxGone && !w.Draining && !w.Parking
	}
	return false
}
