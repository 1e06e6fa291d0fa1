package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
)

// applied is the result of an apply so far.
type applied struct {
	declared  []string // names of the sandboxes in the manifests
	refused   []string // those of them that were refused
	sandboxes []*agboxv1.SandboxHandle
	agents    []*agboxv1.AgentHandle
	along     []*agboxv1.AgentHandle // agents of replaced sandboxes, read before the replacement
}

// refuse records that a sandbox was refused, and returns an error for an agent whose sandbox was refused.
func (there *applied) refuse(d document, err error) error {
	var missing *notFoundError
	switch {
	case d.Agent == nil:
		there.refused = append(there.refused, d.Name)
	case errors.As(err, &missing) && slices.Contains(there.refused, d.Agent.GetSandboxId()):
		return fmt.Errorf("its sandbox %q was refused: see above", d.Agent.GetSandboxId())
	}
	return err
}

// waitApplied waits until agents are in their sandbox and their desired state. Of the agents of replaced sandboxes it waits for those
// whose desired_state is running.
func (a *app) waitApplied(ctx context.Context, there *applied, timeout time.Duration) (failed bool) {
	var run, stop, move []*agboxv1.AgentHandle
	for _, one := range there.agents {
		switch {
		case one.GetMovesTo() != "":
			move = append(move, one)
		case one.GetDesiredState() == wantStopped:
			stop = append(stop, one)
		default:
			run = append(run, one)
		}
	}
	for _, one := range there.along {
		if one.GetDesiredState() != wantStopped && a.agentKind().withID(there.agents, one.GetAgentId()) == nil {
			move = append(move, one)
		}
	}
	for _, group := range []struct {
		agents []*agboxv1.AgentHandle
		want   client.AgentCondition
	}{{move, client.AgentMoved}, {run, client.AgentRunning}, {stop, client.AgentStopped}} {
		failed = waitAll(ctx, a, a.agentKind(), group.agents, string(group.want), timeout) || failed
	}
	return failed
}

// makeRoom deletes the object that a document replaces, and waits until everything is removed: two agents never work in one directory.
// Agents of a sandbox stay, and move to the new one. If it is interrupted the name is free, and another apply creates the object.
//
// It first does a dry run of the create, to find mistakes of the new object before it deletes the old one.
func (a *app) makeRoom(ctx context.Context, d document, p *plan, o applyOptions, there *applied) error {
	if err := a.wouldCreate(ctx, d, p); err != nil {
		return err
	}
	why := cmp.Or(strings.Join(p.immutable, ", "), "FAILED, "+p.sandbox.GetErrorCode())
	if d.Agent != nil {
		fmt.Fprintf(a.Err, "replacing agent/%s (%s): its conversation is lost\n", d.Name, why)
		return remove(ctx, a, a.agentKind(), p.agent, a.conn().DeleteAgent, o.timeout)
	}
	housed, err := a.housed(ctx)
	if err != nil {
		return err
	}
	agents := housed[p.sandbox.GetSandboxId()]
	fmt.Fprintf(a.Err, "replacing sandbox/%s (%s): %s\n", d.Name, why, losses(p.sandbox, agents))
	there.along = append(there.along, agents...)
	return remove(ctx, a, a.sandboxKind(), p.sandbox, a.conn().DeleteSandboxKeepingAgents, o.timeout)
}

// remove deletes an object and waits until it is gone.
func remove[H handle](ctx context.Context, a *app, k kind[H], one H, request func(context.Context, string) error, timeout time.Duration) error {
	if err := request(ctx, k.id(one)); err != nil && !client.IsNotFound(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := await(ctx, a, k, one, string(client.Deleted), timeout); err != nil && !client.IsNotFound(err) {
		return fmt.Errorf("%w; apply again to create it", err)
	}
	return nil
}

// wouldCreate has the daemon check a create, as if the present object were deleted.
func (a *app) wouldCreate(ctx context.Context, d document, p *plan) (err error) {
	if d.Agent == nil {
		_, err = a.conn().CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{
			CreateSpec: d.Spec, SandboxId: uuid.NewString(), Name: d.Name, DryRun: true, Replaces: p.sandbox.GetSandboxId(),
		})
		return err
	}
	req := &agboxv1.CreateAgentRequest{Spec: p.spec, AgentId: uuid.NewString(), Name: d.Name, DryRun: true}
	if p.agent != nil {
		req.Name = "" // it is still in use
	}
	_, err = a.conn().CreateAgent(ctx, req)
	return err
}

// housed returns, by sandbox ID, the agents that a delete of the sandbox would delete: not those that are already being deleted or
// moving to another sandbox.
func (a *app) housed(ctx context.Context) (map[string][]*agboxv1.AgentHandle, error) {
	all, err := a.agents(ctx)
	if err != nil {
		return nil, err
	}
	of := map[string][]*agboxv1.AgentHandle{}
	for _, one := range all {
		if one.GetDesiredState() != wantDeleted && one.GetMovesTo() == "" {
			of[one.GetSandboxId()] = append(of[one.GetSandboxId()], one)
		}
	}
	return of, nil
}

// maxNamed is how many agents a message names.
const maxNamed = 5

// agentNames is "agent coder", "agents coder and tester", or "agents a, b, c, d, e and 12 more".
func agentNames(all []*agboxv1.AgentHandle) string {
	var names []string
	for _, one := range all[:min(len(all), maxNamed)] {
		names = append(names, agentName(one))
	}
	if rest := len(all) - len(names); rest > 0 {
		names = append(names, fmt.Sprintf("%d more", rest))
	}
	if len(names) == 1 {
		return "agent " + names[0]
	}
	last := len(names) - 1
	return "agents " + strings.Join(names[:last], ", ") + " and " + names[last]
}

// processes returns the number of agents with a process.
func processes(all []*agboxv1.AgentHandle) (n uint32) {
	for _, one := range all {
		switch one.GetState() {
		case agboxv1.AgentState_AGENT_STATE_STARTING, agboxv1.AgentState_AGENT_STATE_IDLE, agboxv1.AgentState_AGENT_STATE_BUSY:
			n++
		}
	}
	return n
}

// fateOf says what happens to the agents of a sandbox that is deleted.
func fateOf(agents []*agboxv1.AgentHandle, sb *agboxv1.SandboxHandle, keep bool) string {
	its, stay, leave := "its conversation", "is kept", "is deleted"
	if len(agents) > 1 {
		its, stay, leave = "their conversations", "are kept", "are deleted"
	}
	switch {
	case !keep:
		return fmt.Sprintf("%s %s with %s; \"agbox delete --keep-agents\" keeps agents", agentNames(agents), leave, its)
	case sb.GetName() == "":
		return fmt.Sprintf("%s %s with %s; \"agbox agent move\" moves agents to another sandbox", agentNames(agents), stay, its)
	}
	return fmt.Sprintf("%s %s with %s, for the next sandbox named %s", agentNames(agents), stay, its, sb.GetName())
}

// losses says what is lost with a sandbox that is replaced, and which agents are kept.
func losses(sb *agboxv1.SandboxHandle, agents []*agboxv1.AgentHandle) string {
	text := "its files and logs are lost" + textIf(validate.HasVolumes(sb.GetSpec()), ", its volumes are kept")
	if n := sb.GetActiveExecs(); n > processes(agents) {
		text += fmt.Sprintf(", %d running commands are cancelled", n-processes(agents))
	}
	if len(agents) > 0 {
		text += "; " + comeAlong(agents)
	}
	return text
}

func comeAlong(agents []*agboxv1.AgentHandle) string {
	if len(agents) == 1 {
		return agentNames(agents) + " moves to the new sandbox with its conversation"
	}
	return agentNames(agents) + " move to the new sandbox with their conversations"
}
