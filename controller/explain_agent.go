package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/inspect"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/store"
)

// ExplainAgent is Explain for an agent, by its ID. An agent's passes need no engine, so it is explained without one too; what
// is wrong with the engine is told beside it. Errors: AGENT_NOT_FOUND; ErrUnavailable.
func (c *Controller) ExplainAgent(ctx context.Context, id string) (*agboxv1.ExplainResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, inspect.Timeout)
	defer cancel()
	a, err := c.cfg.Store.Agent(ctx, id)
	if err != nil && !errdefs.IsDataLoss(err) {
		return nil, err
	}
	e := &agentExplanation{Controller: c, a: a, at: c.clock.Look(), blind: err}
	if err == nil {
		e.look(ctx)
	}
	return e.response(), nil
}

// agentExplanation is one look at one agent.
type agentExplanation struct {
	*Controller
	a  store.Agent
	at clock.Look

	blind error             // why there is no verdict
	box   string            // its sandbox, for people
	envs  map[string]string // of the sandbox
	view  *agent.Observation
	plan  agentplan.Plan
}

// look observes and decides, as a pass does.
func (e *agentExplanation) look(ctx context.Context) {
	e.box = e.a.SandboxID
	sb, err := e.cfg.Store.Sandbox(ctx, e.box)
	e.envs = sb.Spec.GetEnvs()
	if err == nil && sb.Name != "" {
		e.box = fmt.Sprintf("%s (%s)", sb.Name, sb.ID)
	}
	if e.view, e.blind = e.agents.Observer().Observe(ctx, e.a, e.at); e.blind == nil {
		e.plan = e.view.Plan()
	}
}

func (e *agentExplanation) response() *agboxv1.ExplainResponse {
	last, link := e.agentLoop.Failure(e.a.ID), e.link.State()
	r := &agboxv1.ExplainResponse{
		Desired: agentWanted(e.a), AgentState: agentWord(e.a.Status.GetState()), Observed: e.observed(), Waiting: e.waiting(),
		Tries: uint32(e.agentLoop.Tries(e.a.ID)), EngineProblem: link.Problem,
	}
	if e.blind == nil {
		r.Differences, r.NextSteps, r.Deadlines = e.differences(), e.nextSteps(), e.deadlines()
	}
	if last.Err != nil {
		r.LastError = e.redact(message.Of(last.Err))
	}
	if last.RetryAt.After(time.Now()) {
		r.RetryAt = timestamppb.New(last.RetryAt)
	}
	if link.Problem != "" {
		r.EngineProblemSince = timestamppb.New(link.Since)
	}
	return r
}

// agentWanted is what is wanted; empty when the record does not say.
func agentWanted(a store.Agent) string {
	if a.Desired == nil {
		return ""
	}
	return strings.ToLower(enum.Word(a.Desired.GetRun()))
}

// agentWord is empty when the record does not say.
func agentWord(s agboxv1.AgentState) string {
	if s == agboxv1.AgentState_AGENT_STATE_UNSPECIFIED {
		return ""
	}
	return enum.Word(s)
}

// waiting is why nothing happens, or not yet.
func (e *agentExplanation) waiting() string {
	switch {
	case errdefs.IsDataLoss(e.blind):
		return "its stored record does not decode, so it is left alone; see the daemon's log"
	case e.blind != nil:
		return "no verdict: " + e.redact(message.Of(e.blind))
	case e.plan.Waiting == "" && e.plan.Kind == agentplan.Wait && e.ended() && agentWanted(e.a) == "run":
		return fmt.Sprintf("its process has ended, and its restart_policy (%s) does not start it again; `agbox agent start` does",
			orElse(e.a.Spec.GetRestartPolicy(), string(agentplan.RestartOnFailure)))
	}
	return e.redact(e.plan.Waiting)
}

// ended reports whether the record says that the process has.
func (e *agentExplanation) ended() bool {
	s := e.a.Status.GetState()
	return s == agboxv1.AgentState_AGENT_STATE_STOPPED || s == agboxv1.AgentState_AGENT_STATE_FAILED
}

// redact takes env values of the agent and of its sandbox out of a text that may quote a program.
func (e *agentExplanation) redact(text string) string {
	return message.Redact(strings.ToValidUTF8(text, ""), e.a.Spec.GetEnvs(), e.envs)
}
