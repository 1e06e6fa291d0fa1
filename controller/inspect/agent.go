package inspect

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/message"
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
	r.Desired, r.AgentState, r.Observed, r.Waiting = agentWanted(e.a), agentWord(e.a.Status.GetState()), e.observed(), e.waiting()
	if e.blind == nil {
		r.Differences, r.NextSteps, r.Deadlines = e.differences(), e.nextSteps(), e.deadlines()
	}
	return r
}

// agentWanted returns the word for the desired state; empty: the record has none.
func agentWanted(a store.Agent) string {
	if a.Desired == nil {
		return ""
	}
	return strings.ToLower(enum.Word(a.Desired.GetRun()))
}

// agentWord returns the word for a state; empty: the record has none.
func agentWord(s agboxv1.AgentState) string {
	if s == agboxv1.AgentState_AGENT_STATE_UNSPECIFIED {
		return ""
	}
	return enum.Word(s)
}

// waiting returns why nothing happens now.
func (e *agentExplanation) waiting() string {
	switch {
	case errdefs.IsDataLoss(e.blind):
		return "its stored record does not decode, so it is left alone; see the daemon's log"
	case e.blind != nil:
		return "no verdict: " + e.redact(message.Of(e.blind))
	case e.plan.Waiting == "" && e.plan.Kind == agentplan.Wait && e.ended() && agentWanted(e.a) == "run":
		return fmt.Sprintf("its process has ended, and its restart_policy (%s) does not start it again; `agbox agent start` does",
			cmp.Or(e.a.Spec.GetRestartPolicy(), string(agentplan.RestartOnFailure)))
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
