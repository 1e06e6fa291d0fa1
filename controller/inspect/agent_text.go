package inspect

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/controller/agentplan"
)

// boxState returns the state of its sandbox. The record of a deleted sandbox has none.
func (e *agentExplanation) boxState() string {
	if s := e.view.Sandbox.State; s != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED {
		return enum.Word(s)
	}
	return enum.Word(agboxv1.SandboxState_SANDBOX_STATE_DELETED)
}

// observed returns one line each for the sandbox, the process, the files, the prompts, and a drain.
func (e *agentExplanation) observed() []string {
	if e.blind != nil {
		return nil
	}
	w := e.view.World
	lines := []string{fmt.Sprintf("sandbox %s: %s", e.box, e.boxState()), "process " + e.process()}
	if line := e.output(); line != "" {
		lines = append(lines, line)
	}
	if w.Undelivered {
		lines = append(lines, "inbox: it may not hold all that the process is to be told")
	}
	if id := e.a.Status.GetPromptId(); id != "" {
		lines = append(lines, "turn: of prompt "+id)
	}
	if n := e.a.Queued; n > 0 {
		lines = append(lines, "queue: "+prompts(n))
	}
	if w.Draining {
		lines = append(lines, "the daemon drains: no process is started and no prompt is given")
	}
	if _, unverified := e.o.AgentStatus(e.a.ID); unverified {
		lines = append(lines, "no pass has judged it since the daemon started")
	}
	return lines
}

func prompts(n int) string {
	if n == 1 {
		return "1 prompt"
	}
	return fmt.Sprintf("%d prompts", n)
}

// process describes the newest incarnation.
func (e *agentExplanation) process() string {
	w := e.view.World
	if e.a.Status.GetIncarnation() == 0 {
		return "none: it was never started"
	}
	text := e.view.ExecID + ": "
	switch {
	case w.Process == agentplan.Alive:
		return text + "alive"
	case w.Process == agentplan.Waiting:
		return text + "recorded, neither seen to run nor to have ended"
	case w.Process == agentplan.NoProcess:
		return text + "nothing is known of it"
	case w.Error != "":
		return text + "did not start: " + e.redact(w.Error)
	case w.Lost:
		return text + "died with its container"
	case w.Cancelled:
		return text + fmt.Sprintf("ended on request, with exit code %d", w.ExitCode)
	}
	return text + fmt.Sprintf("ended with exit code %d", w.ExitCode)
}

// output says how much of the output is ingested; empty if it was not read.
func (e *agentExplanation) output() string {
	pos := e.view.Position
	switch {
	case pos == nil:
		return ""
	case e.view.World.Unread:
		return fmt.Sprintf("output: taken in up to byte %d, and there is more", pos.GetStdoutOffset())
	}
	return fmt.Sprintf("output: all of %d bytes is taken in", pos.GetStdoutOffset())
}

// differences returns what differs from the desired state, one line each.
func (e *agentExplanation) differences() (lines []string) {
	st := e.a.Status
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	up := st.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE || st.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY
	switch e.a.Desired.GetRun() {
	case storev1.AgentRun_AGENT_RUN_DELETE:
		add("it is still there")
	case storev1.AgentRun_AGENT_RUN_STOP:
		if st.GetState() != agboxv1.AgentState_AGENT_STATE_STOPPED {
			add("the state is %s, not STOPPED", agentWord(st.GetState()))
		}
	default:
		if !up {
			add("the state is %s, not IDLE or BUSY", agentWord(st.GetState()))
		}
	}
	if st.GetNeedsAttention() {
		add("it needs attention: %s", e.redact(st.GetReason()))
	}
	if to := e.a.Desired.GetMoveTo(); to != "" && to != e.a.SandboxID {
		add("it is in sandbox %s, not in %s", e.a.SandboxID, to)
	}
	if e.a.Queued > 0 && st.GetState() != agboxv1.AgentState_AGENT_STATE_BUSY {
		add("%s not given", prompts(e.a.Queued))
	}
	return lines
}

// nextSteps returns the step that a pass would run now, if any; the next pass decides again.
func (e *agentExplanation) nextSteps() []string {
	p := e.plan
	line := string(p.Kind)
	switch p.Kind {
	case agentplan.Wait:
		return nil
	case agentplan.Spawn:
		line += fmt.Sprintf(" process %d", e.a.Status.GetIncarnation()+1)
		if p.Attempts > 1 {
			line += fmt.Sprintf(" (try %d of %d)", p.Attempts, agentplan.MaxAttempts)
		}
	case agentplan.Transition:
		line = fmt.Sprintf("record %s (%s)", enum.Word(p.Trigger), e.redact(p.Reason))
	default:
		line += " (" + stepReasons[p.Kind] + ")"
	}
	return []string{line}
}

// stepReasons are the reasons of an agent's steps where the plan has none.
var stepReasons = map[agentplan.Kind]string{
	agentplan.Read: "what the process has printed is taken in", agentplan.Claim: "the next prompt is its turn",
	agentplan.Deliver: "what it is told goes to its inbox", agentplan.End: "the process is cancelled",
	agentplan.Nudge: "its turn is told to finish", agentplan.Freeze: "its turn is interrupted, so that its work can be saved",
	agentplan.Keep:      "the work of a turn that was cut off is saved",
	agentplan.Summarize: "its past is summarized for its next prompt", agentplan.Remove: "agent and conversation are forgotten",
	agentplan.Move: "it goes to its other sandbox", agentplan.Adopt: "that its process was found alive is recorded",
}

// deadlines returns the deadline of the plan, if time alone causes the next step.
func (e *agentExplanation) deadlines() []*agboxv1.ExplainDeadline {
	d := &agboxv1.ExplainDeadline{At: timestamppb.New(e.at.Now.Add(e.plan.Next))}
	switch state := e.a.Status.GetState(); {
	case e.plan.Next < time.Millisecond || e.plan.Kind != agentplan.Wait:
		return nil
	case state == agboxv1.AgentState_AGENT_STATE_STARTING:
		d.Kind, d.Action = "start_timeout", "fail"
	case state == agboxv1.AgentState_AGENT_STATE_BUSY:
		d.Kind, d.Action, d.At = "turn", "end", timestamppb.New(e.at.Now.Add(e.view.World.TurnLeft))
	case e.ended():
		d.Kind, d.Action = "back-off", "start"
	default:
		return nil
	}
	return []*agboxv1.ExplainDeadline{d}
}
