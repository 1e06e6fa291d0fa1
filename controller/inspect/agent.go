package inspect

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/store"
)

// ExplainAgent explains an agent, by its ID, as Explain does a sandbox. Passes over agents need no engine, so neither does this; the
// response also says what is wrong with the engine. Errors: AGENT_NOT_FOUND; ErrUnavailable.
func (x *Explainer) ExplainAgent(ctx context.Context, id string) (*agboxv1.ExplainResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	a, err := x.o.Agent(ctx, id)
	if err != nil && !errdefs.IsDataLoss(err) {
		return nil, err
	}
	e := &agentExplanation{o: x.o, a: a, at: x.o.Clock(), blind: err}
	if err == nil {
		e.observe(ctx)
	}
	return e.response(), nil
}

// agentExplanation explains one agent at one moment.
type agentExplanation struct {
	o  Options
	a  store.Agent
	at clock.Reading

	blind error             // why there is no decision
	box   string            // its sandbox, for humans
	envs  map[string]string // of the sandbox
	view  *agent.Observation
	plan  agentplan.Plan
}

// observe observes and decides, as a pass does.
func (e *agentExplanation) observe(ctx context.Context) {
	e.box = e.a.SandboxID
	sb, err := e.o.Sandbox(ctx, e.box)
	e.envs = sb.Spec.GetEnvs()
	if err == nil && sb.Name != "" {
		e.box = fmt.Sprintf("%s (%s)", sb.Name, sb.ID)
	}
	if e.view, e.blind = e.o.Agents.Observe(ctx, e.a, e.at); e.blind == nil {
		e.plan = e.view.Plan()
	}
}

func (e *agentExplanation) response() *agboxv1.ExplainResponse {
	r := answer(e.o.AgentQueue, e.a.ID, e.o.Engine(), e.redact)
	r.Desired, r.AgentState, r.Observed, r.Waiting = strings.ToLower(word(e.a.Desired.GetRun())), word(e.a.Status.GetState()), e.observed(), e.waiting()
	if e.blind == nil {
		r.Differences, r.NextSteps, r.Deadlines = e.differences(), e.nextSteps(), e.deadlines()
	}
	return r
}

// waiting returns why nothing happens now.
func (e *agentExplanation) waiting() string {
	switch {
	case errdefs.IsDataLoss(e.blind):
		return "its stored record does not decode, so it is left alone; see the daemon's log"
	case e.blind != nil:
		return "no verdict: " + e.redact(message.Of(e.blind))
	case e.plan.Waiting == "" && e.plan.Kind == agentplan.Wait && e.ended() && e.a.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_RUN:
		return fmt.Sprintf("its process has ended, and its restart_policy (%s) does not start it again; `agbox agent start` does",
			cmp.Or(e.a.Spec.GetRestartPolicy(), string(plan.RestartOnFailure)))
	}
	return e.redact(e.plan.Waiting)
}

// ended reports whether the record says that the process has ended.
func (e *agentExplanation) ended() bool {
	s := e.a.Status.GetState()
	return s == agboxv1.AgentState_AGENT_STATE_STOPPED || s == agboxv1.AgentState_AGENT_STATE_FAILED
}

// redact removes env values of the agent and of its sandbox from a text that may quote a program.
func (e *agentExplanation) redact(text string) string {
	return message.Redact(strings.ToValidUTF8(text, ""), e.a.Spec.GetEnvs(), e.envs)
}

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
		lines = append(lines, "inbox: input for the process may be missing")
	}
	if id := e.a.Status.GetPromptId(); id != "" {
		lines = append(lines, "turn: of prompt "+id)
	}
	if n := e.a.Queued; n > 0 {
		lines = append(lines, "queue: "+prompts(n))
	}
	if n := e.a.Held; n > 0 {
		lines = append(lines, "held: "+prompts(n)+", the newest because "+e.redact(e.a.HeldReason)+
			"; `agbox agent redeliver` gives a held prompt again, `agbox agent withdraw` removes it")
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
		return text + "its end is unknown"
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
		return fmt.Sprintf("output: ingested up to byte %d, and more is waiting", pos.GetStdoutOffset())
	}
	return fmt.Sprintf("output: all %d bytes are ingested", pos.GetStdoutOffset())
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
			add("the state is %s, not STOPPED", word(st.GetState()))
		}
	default:
		if !up {
			add("the state is %s, not IDLE or BUSY", word(st.GetState()))
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
	agentplan.Read: "the output of the process is ingested", agentplan.Claim: "the next prompt starts its turn",
	agentplan.Deliver: "its prompt, nudge or interrupt is written to its inbox", agentplan.End: "the process is cancelled",
	agentplan.Nudge: "its turn is nudged to finish", agentplan.Interrupt: "its turn is interrupted, so that its work can be saved",
	agentplan.Keep:        "the work of a turn that was cut off is saved",
	agentplan.SaveSession: "a turn has ended since its program's session was saved", agentplan.RestoreSession: "its program's session was saved in another sandbox",
	agentplan.Summarize: "its older turns are summarized for its next prompt", agentplan.Remove: "agent and conversation are deleted",
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
