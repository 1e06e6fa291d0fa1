package agentplan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/apis/enum"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
)

const (
	run  = storev1.AgentRun_AGENT_RUN_RUN
	halt = storev1.AgentRun_AGENT_RUN_STOP
	del  = storev1.AgentRun_AGENT_RUN_DELETE

	pendingState  = agboxv1.AgentState_AGENT_STATE_PENDING
	startingState = agboxv1.AgentState_AGENT_STATE_STARTING
	idleState     = agboxv1.AgentState_AGENT_STATE_IDLE
	busyState     = agboxv1.AgentState_AGENT_STATE_BUSY
	stoppedState  = agboxv1.AgentState_AGENT_STATE_STOPPED
	failedState   = agboxv1.AgentState_AGENT_STATE_FAILED
)

var now = time.Unix(1_700_000_000, 0)

type scene struct {
	r Record
	w World
}

// at is a healthy agent in that state.
func at(state agboxv1.AgentState) scene {
	s := scene{
		r: Record{
			Run: run, State: state, Attempts: 1, LastStart: now.Add(-20 * time.Second),
			ReadyAt: now.Add(-10 * time.Second), ChangedAt: now.Add(-10 * time.Second), StartTimeout: time.Minute,
		},
		w: World{SandboxUp: true, Process: Alive, SandboxWaits: "its sandbox is STOPPED"},
	}
	switch state {
	case pendingState:
		s.r.Attempts, s.r.LastStart, s.r.ReadyAt, s.w.Process = 0, time.Time{}, time.Time{}, NoProcess
	case startingState:
		s.r.ReadyAt, s.r.ChangedAt = time.Time{}, s.r.LastStart
	case stoppedState, failedState:
		s.w.Process = Ended
	}
	return s
}

func render(p Plan) string {
	parts := []string{string(p.Kind)}
	if p.Trigger != 0 {
		parts = append(parts, enum.Word(p.Trigger))
	}
	if p.Parked {
		parts = append(parts, "parked")
	}
	if p.NeedsAttention {
		parts = append(parts, "attention")
	}
	if p.SessionLost {
		parts = append(parts, "session-lost")
	}
	if p.Attempts > 0 {
		parts = append(parts, fmt.Sprintf("attempt:%d", p.Attempts))
	}
	if p.Saved != "" {
		parts = append(parts, string(p.Saved))
	}
	if p.Next > 0 {
		parts = append(parts, "next:"+p.Next.String())
	}
	return strings.Join(parts, " ")
}

func TestDecide(t *testing.T) {
	ends := func(code int) func(*scene) {
		return func(s *scene) { s.w.Process, s.w.ExitCode = Ended, code }
	}
	lost := func(s *scene) { s.w.Process, s.w.Lost = Ended, true }
	cancelled := func(s *scene) { s.w.Process, s.w.Cancelled, s.w.ExitCode = Ended, true, 143 }
	down := func(s *scene) { s.w.SandboxUp = false }
	terminated := func(s *scene) {
		s.w.SandboxUp, s.w.Terminated, s.w.TurnEnds, s.w.TurnLeft = false, true, true, 4*time.Second
	}
	moving := func(s *scene) { s.w.Destination = "there" }
	ending := func(s *scene) {
		s.w.SandboxUp, s.w.Ending, s.w.InTurn, s.w.TurnEnds, s.w.TurnLeft = false, true, true, true, 20*time.Second
	}
	for _, row := range []struct {
		name   string
		state  agboxv1.AgentState
		mutate func(*scene)
		want   string
	}{
		{"never attempted: started", pendingState, nil, "spawn attempt:1"},
		{"its sandbox is not up: wait", pendingState, down, "wait"},
		{"its sandbox is gone: wait", pendingState, func(s *scene) { s.w.SandboxGone = true }, "wait"},
		{"draining: nothing starts", pendingState, func(s *scene) { s.w.Draining = true }, "wait"},
		{"wanted stopped before it ever ran", pendingState, func(s *scene) { s.r.Run = halt }, "transition USER_TERMINATED"},

		{"starting and alive: wait", startingState, nil, "wait next:40s"},
		{"starting, its exec has not started", startingState, func(s *scene) { s.w.Process = Waiting }, "wait next:40s"},
		{"ready when its process is there", startingState, func(s *scene) { s.r.ReadyIsProcess = true }, "transition CONNECTED"},
		{"its process is not there yet", startingState, func(s *scene) { s.r.ReadyIsProcess, s.w.Process = true, Waiting }, "wait next:40s"},
		{"not ready in time", startingState, func(s *scene) { s.r.LastStart = now.Add(-time.Minute) }, "transition START_TIMED_OUT"},
		{"not ready in time for the last time", startingState, func(s *scene) { s.r.LastStart, s.r.Attempts = now.Add(-time.Minute), MaxAttempts },
			"transition START_TIMED_OUT attention"},
		{"frozen while it starts", startingState, func(s *scene) { s.r.LastStart = now.Add(-time.Hour); down(s) }, "wait"},
		{"thawed while it starts: its time starts over", startingState, func(s *scene) {
			s.r.LastStart, s.w.UpSince = now.Add(-time.Hour), now.Add(-20*time.Second)
		}, "wait next:40s"},
		{"dead while starting", startingState, ends(1), "transition PROCESS_CRASHED"},
		{"gone with 0 while starting", startingState, ends(0), "transition PROCESS_EXITED"},
		{"could not start", startingState, func(s *scene) { s.w.Process, s.w.Error = Ended, "no such file" }, "transition PROCESS_CRASHED"},
		{"dead while starting for the last time", startingState, func(s *scene) { ends(1)(s); s.r.Attempts = MaxAttempts },
			"transition PROCESS_CRASHED attention"},
		{"gone with 0 while starting, for the last time", startingState, func(s *scene) { ends(0)(s); s.r.Attempts = MaxAttempts },
			"transition PROCESS_EXITED attention"},
		{"gone with 0 in a turn, for the last time", busyState, func(s *scene) { ends(0)(s); s.r.Attempts = MaxAttempts },
			"transition PROCESS_EXITED attention"},
		{"gone with 0, ready when started", startingState, func(s *scene) {
			ends(0)(s)
			s.r.Attempts, s.r.ReadyIsProcess = MaxAttempts, true
		}, "transition PROCESS_EXITED"},
		{"nothing is known of its process, for the last time", startingState, func(s *scene) { s.w.Process, s.r.Attempts = NoProcess, MaxAttempts },
			"transition RECONCILIATION attention"},
		{"dead while it resumes its session", startingState, func(s *scene) { ends(1)(s); s.r.Resumes = true }, "transition PROCESS_CRASHED session-lost"},
		{"gone while it resumes its session", startingState, func(s *scene) { ends(0)(s); s.r.Resumes = true }, "transition PROCESS_EXITED session-lost"},
		{"not ready in time while it resumes its session", startingState, func(s *scene) { s.r.LastStart, s.r.Resumes = now.Add(-time.Minute), true },
			"transition START_TIMED_OUT session-lost"},
		{"lost with its container while it resumes", startingState, func(s *scene) { lost(s); s.r.Resumes = true }, "transition PROCESS_CRASHED"},
		{"dead after it has resumed", idleState, func(s *scene) { ends(1)(s); s.r.Resumes = true }, "transition PROCESS_CRASHED"},
		{"nothing is known of its process", startingState, func(s *scene) { s.w.Process = NoProcess }, "transition RECONCILIATION"},

		{"idle: nothing", idleState, nil, "wait"},
		{"idle with a prompt", idleState, func(s *scene) { s.r.Queued = true }, "claim"},
		{"its session is saved before its next prompt", idleState, func(s *scene) { s.r.Queued, s.w.Unsaved = true, true }, "save_session"},
		{"its session is saved after what it may still do", idleState, func(s *scene) { s.w.Unsaved, s.w.Finishing = true, time.Second }, "wait next:1s"},
		{"a drain ends it first", idleState, func(s *scene) { s.w.Unsaved, s.w.Draining, s.w.Parking = true, true, true }, "end"},
		{"ended for a drain: its session, then its state", busyState, func(s *scene) { cancelled(s); s.w.Unsaved = true }, "save_session"},
		{"ended for a drain: its work first", busyState, func(s *scene) { cancelled(s); s.w.Unsaved, s.w.Save = true, SaveDue }, "save next:1s"},
		{"its session is put into its new sandbox first", stoppedState, func(s *scene) { s.r.Parked, s.w.Unrestored = true, true }, "restore_session"},
		{"not into one that is not up", stoppedState, func(s *scene) { s.r.Parked, s.w.Unrestored = true, true; down(s) }, "wait"},
		{"deleted: its session is not saved", idleState, func(s *scene) { s.r.Run, s.w.Unsaved = del, true; cancelled(s) }, "remove"},
		{"idle with a prompt, draining", idleState, func(s *scene) { s.r.Queued, s.w.Draining = true, true }, "wait"},
		{"idle with a prompt, its sandbox stops", idleState, func(s *scene) { s.r.Queued = true; down(s) }, "wait"},
		{"idle and gone with 0", idleState, ends(0), "transition PROCESS_EXITED"},
		{"idle and dead", idleState, ends(137), "transition PROCESS_CRASHED"},
		{"idle and lost", idleState, lost, "transition PROCESS_CRASHED"},
		{"idle, and a sandbox that was stopped", idleState, func(s *scene) { cancelled(s); down(s) }, "transition DRAIN_PARKED parked"},
		{"ended with its container, which others stopped: parked", idleState, func(s *scene) { ends(143)(s); s.w.WithContainer, s.w.Stopped = true, true },
			"transition DRAIN_PARKED parked"},
		{"lost with its container in a turn: its work too", busyState, func(s *scene) { lost(s); s.w.WithContainer, s.w.Stopped, s.w.Save = true, true, NotSaved },
			"transition DRAIN_PARKED parked not saved"},
		{"ended with its container: the sandbox is judged first", idleState, func(s *scene) { ends(143)(s); terminated(s); s.w.WithContainer = true }, "wait next:1s"},
		{"ended with its container, wanted stopped", idleState, func(s *scene) { ends(143)(s); terminated(s); s.w.WithContainer = true; s.r.Run = halt },
			"transition PROCESS_CRASHED"},
		{"ended with its container, by the engine's death", idleState, func(s *scene) { ends(143)(s); s.w.WithContainer = true }, "transition PROCESS_CRASHED"},
		{"others stop its container: ended", idleState, terminated, "end"},
		{"others stop its container, in a turn: interrupted", busyState, terminated, "interrupt"},
		{"others stop its container, interrupted", busyState, func(s *scene) { terminated(s); s.r.Interrupted = true }, "wait next:4s"},
		{"others stop its container, and its turn does not end", busyState, func(s *scene) { terminated(s); s.r.Interrupted, s.w.TurnLeft = true, 0 }, "end"},
		{"others stop its container: saved first", busyState, func(s *scene) { terminated(s); cancelled(s); s.w.Save = SaveDue }, "save next:1s"},
		{"others stop its container: parked", idleState, func(s *scene) { terminated(s); cancelled(s) }, "transition DRAIN_PARKED parked"},
		{"others stop its container: not started", stoppedState, func(s *scene) { terminated(s); s.r.Parked = true }, "wait"},
		{"dead after it was well for long", idleState, func(s *scene) {
			ends(1)(s)
			s.r.Attempts, s.r.ReadyAt = MaxAttempts, now.Add(-HealthyAfter)
		}, "transition PROCESS_CRASHED"},
		{"a policy that restarts nothing needs no attention", idleState, func(s *scene) {
			ends(1)(s)
			s.r.Attempts, s.r.Restart = MaxAttempts, plan.RestartNever
		}, "transition PROCESS_CRASHED"},

		{"a drain parks an idle one", idleState, func(s *scene) { s.w.Draining, s.w.Parking = true, true }, "end"},
		{"a drain parks one that starts", startingState, func(s *scene) { s.w.Draining, s.w.Parking = true, true }, "end"},
		{"a drain waits for a turn", busyState, func(s *scene) { s.w.Draining, s.w.Parking = true, true }, "wait"},
		{"marked to come back, and gone with the host", busyState, func(s *scene) { s.r.Parked = true; lost(s) }, "transition DRAIN_PARKED parked"},
		{"busy: nothing is repeated", busyState, nil, "wait"},
		{"busy, and the prompt is not in its inbox", busyState, func(s *scene) { s.w.Undelivered = true }, "deliver"},
		{"busy, with another prompt", busyState, func(s *scene) { s.r.Queued = true }, "wait"},
		{"busy and dead in the turn", busyState, ends(1), "transition PROCESS_CRASHED"},
		{"busy and gone with 0", busyState, ends(0), "transition PROCESS_EXITED"},
		{"dead, with a result that was not read", busyState, func(s *scene) { ends(1)(s); s.w.Unread = true }, "read"},

		{"stop: end the process", idleState, func(s *scene) { s.r.Run = halt }, "end"},
		{"stop while busy", busyState, func(s *scene) { s.r.Run = halt }, "end"},
		{"stopped on request", idleState, func(s *scene) { s.r.Run = halt; cancelled(s) }, "transition USER_TERMINATED"},
		{"stop, and it died by itself", idleState, func(s *scene) { s.r.Run = halt; ends(1)(s) }, "transition PROCESS_CRASHED"},
		{"stop of a failed one", failedState, func(s *scene) { s.r.Run = halt }, "transition USER_TERMINATED"},
		{"stopped and wanted so", stoppedState, func(s *scene) { s.r.Run = halt }, "wait"},
		{"stopped but alive: that process goes", stoppedState, func(s *scene) { s.w.Process = Alive }, "end"},
		{"failed but alive: that process goes", failedState, func(s *scene) { s.w.Process = Alive }, "end"},
		{"failed, and its exec may still start", failedState, func(s *scene) { s.w.Process = Waiting }, "end"},

		{"its sandbox stops: idle ends at once", idleState, func(s *scene) { ending(s); s.w.TurnLeft = 0 }, "end"},
		{"its sandbox stops: starting ends at once", startingState, ending, "end"},
		{"its sandbox stops: a turn has a while", busyState, ending, "wait next:15s"},
		{"its sandbox stops: and is nudged", busyState, func(s *scene) { ending(s); s.w.Nudge = true }, "nudge"},
		{"its sandbox stops: the nudge goes out", busyState, func(s *scene) { ending(s); s.w.Undelivered = true }, "deliver"},
		{"its sandbox stops: the turn is interrupted", busyState, func(s *scene) { ending(s); s.w.TurnLeft = 5 * time.Second }, "interrupt"},
		{"its sandbox stops: that is delivered", busyState, func(s *scene) {
			ending(s)
			s.r.Interrupted, s.w.TurnLeft, s.w.Undelivered = true, 5*time.Second, true
		}, "deliver"},
		{"its sandbox stops: and waited for", busyState, func(s *scene) { ending(s); s.r.Interrupted, s.w.TurnLeft = true, 4*time.Second }, "wait next:4s"},
		{"its sandbox stops: the while is over", busyState, func(s *scene) { ending(s); s.w.TurnLeft = 0 }, "end"},
		{"its sandbox has cut the turn off: save", busyState, func(s *scene) { ending(s); cancelled(s); s.w.Save = SaveDue }, "save next:1s"},
		{"saved", busyState, func(s *scene) { ending(s); cancelled(s); s.w.Save = Saved }, "transition DRAIN_PARKED parked saved"},
		{"not saved", busyState, func(s *scene) { ending(s); cancelled(s); s.w.Save = NotSaved }, "transition DRAIN_PARKED parked not saved"},
		{"a drain nudges", busyState, func(s *scene) { s.w.Draining, s.w.Parking, s.w.Nudge = true, true, true }, "nudge"},
		{"nudged, and nothing waits", idleState, func(s *scene) { s.r.Nudged = true }, "wait"},
		{"nudged: the next prompt is another process's", idleState, func(s *scene) { s.r.Nudged, s.r.Queued = true, true }, "end"},
		{"its past is summarized first", idleState, func(s *scene) { s.w.Summarizing, s.r.Queued = true, true }, "summarize next:1s"},

		{"told to finish, as a turn of its own", idleState, func(s *scene) { s.r.Nudged, s.w.Finishing = true, time.Minute }, "wait next:1m0s"},
		{"that, and a prompt waits", idleState, func(s *scene) { s.r.Nudged, s.r.Queued, s.w.Finishing = true, true, time.Minute }, "wait next:1m0s"},
		{"that, and a drain parks", idleState, func(s *scene) { s.w.Draining, s.w.Parking, s.w.Finishing = true, true, time.Minute }, "wait next:1m0s"},
		{"that, and its sandbox stops", idleState, func(s *scene) { ending(s); s.w.Finishing = time.Minute }, "wait next:20s"},
		{"that, and the while is over", idleState, func(s *scene) { ending(s); s.w.TurnLeft, s.w.Finishing = 0, time.Minute }, "end"},

		{"to move: idle ends for it", idleState, func(s *scene) { s.r.Queued = true; moving(s) }, "end"},
		{"to move: starting ends for it", startingState, moving, "end"},
		{"to move: a turn is waited for", busyState, moving, "wait"},
		{"to move: what it was told to finish is waited for", idleState, func(s *scene) { moving(s); s.w.Finishing = time.Minute }, "wait next:1m0s"},
		{"to move: ended for it", idleState, func(s *scene) { moving(s); cancelled(s) }, "transition DRAIN_PARKED parked"},
		{"to move: what it said is read first", stoppedState, func(s *scene) { moving(s); s.w.Unread = true }, "read"},
		{"to move: there is no process", stoppedState, moving, "move"},
		{"to move: it has failed for good", failedState, func(s *scene) { moving(s); s.r.NeedsAttention = true }, "move"},
		{"to move: it has never run", pendingState, moving, "move"},
		{"to move: wanted stopped", stoppedState, func(s *scene) { moving(s); s.r.Run = halt }, "move"},
		{"to move: failed, and alive", failedState, func(s *scene) { moving(s); s.w.Process = Alive }, "end"},
		{"to move, and to be deleted", stoppedState, func(s *scene) { moving(s); s.r.Run = del }, "remove"},

		{"found alive: that is recorded", idleState, func(s *scene) { s.w.Found = true }, "adopt"},
		{"found alive in its turn", busyState, func(s *scene) { s.w.Found = true }, "adopt"},
		{"found dead", busyState, func(s *scene) { s.w.Found = true; ends(1)(s) }, "transition PROCESS_CRASHED"},

		{"failed: started again after a pause", failedState, func(s *scene) { s.r.ChangedAt = now }, "wait next:1s"},
		{"failed: the pause is over", failedState, nil, "spawn attempt:2"},
		{"failed for the third time", failedState, func(s *scene) { s.r.Attempts, s.r.ChangedAt = 3, now }, "wait next:4s"},
		{"failed, and not to be started again", failedState, func(s *scene) { s.r.Restart = plan.RestartNever }, "wait"},
		{"failed too often", failedState, func(s *scene) { s.r.NeedsAttention = true }, "wait"},
		{"failed after it was well for long", failedState, func(s *scene) { s.r.Attempts, s.r.ReadyAt = 4, s.r.ChangedAt.Add(-HealthyAfter) }, "spawn attempt:1"},
		{"failed, its sandbox is not up", failedState, down, "wait"},
		{"failed, draining", failedState, func(s *scene) { s.w.Draining = true }, "wait"},
		{"failed in a future that is none: the clock was set back", failedState, func(s *scene) { s.r.ChangedAt = now.Add(time.Hour) }, "spawn attempt:1"},
		{"ended by itself with 0: stays", stoppedState, nil, "wait"},
		{"ended by itself with 0, always", stoppedState, func(s *scene) { s.r.Restart = plan.RestartAlways }, "spawn attempt:2"},
		{"parked: comes back at once", stoppedState, func(s *scene) { s.r.Parked, s.r.ChangedAt, s.r.Restart = true, now, plan.RestartNever }, "spawn attempt:1"},

		{"delete: end the process", busyState, func(s *scene) { s.r.Run = del }, "end"},
		{"delete with its sandbox: a turn has a while", busyState, func(s *scene) { s.r.Run = del; ending(s) }, "wait next:15s"},
		{"delete with its sandbox: the nudge goes out", busyState, func(s *scene) { s.r.Run = del; ending(s); s.w.Undelivered = true }, "deliver"},
		{"delete with its sandbox: the turn is interrupted", busyState, func(s *scene) { s.r.Run = del; ending(s); s.w.TurnLeft = time.Second }, "interrupt"},
		{"delete with its sandbox: the while is over", busyState, func(s *scene) { s.r.Run = del; ending(s); s.w.TurnLeft = 0 }, "end"},
		{"delete with its sandbox: the work is saved", busyState, func(s *scene) { s.r.Run = del; ending(s); cancelled(s); s.w.Save = SaveDue }, "save next:1s"},
		{"delete with its sandbox: it is saved", busyState, func(s *scene) { s.r.Run = del; ending(s); cancelled(s); s.w.Save = Saved }, "transition DRAIN_PARKED parked saved"},
		{"delete with its sandbox: idle", idleState, func(s *scene) { s.r.Run = del; ending(s); s.w.InTurn, s.w.TurnLeft = false, 0 }, "end"},
		{"delete with its sandbox: idle, and interrupted before", idleState, func(s *scene) { s.r.Run = del; ending(s) }, "end"},
		{"delete with its sandbox: ended, and interrupted before", idleState, func(s *scene) { s.r.Run = del; ending(s); cancelled(s); s.w.Save = SaveDue }, "save next:1s"},
		{"delete: forget it", stoppedState, func(s *scene) { s.r.Run = del }, "remove"},
		{"delete of one that never ran", pendingState, func(s *scene) { s.r.Run = del }, "remove"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := at(row.state)
			if row.mutate != nil {
				row.mutate(&s)
			}
			if got := render(Decide(s.r, s.w, now)); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}
