package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
)

// kind is "sandbox" or "agent".
func (d document) kind() string {
	if d.Agent != nil {
		return "agent"
	}
	return "sandbox"
}

// sandboxesFirst moves sandboxes before agents, and keeps the order otherwise.
func sandboxesFirst(docs []document) []document {
	docs = slices.Clone(docs)
	slices.SortStableFunc(docs, func(a, b document) int { return strings.Compare(b.kind(), a.kind()) })
	return docs
}

// applyAgent creates the agent, or compares it with the one that has the name. Only its sandbox and its desired state can change in
// place.
func (a *app) applyAgent(ctx context.Context, d document, o applyOptions) (*agboxv1.AgentHandle, error) {
	return applyNamed(ctx, a.agentKind(), d, func(old *agboxv1.AgentHandle) (*agboxv1.AgentHandle, error) {
		spec, err := a.agentSpec(ctx, d)
		switch {
		case err != nil:
			return nil, err
		case old == nil:
			return a.createAgent(ctx, d, spec, "created")
		}
		return a.changeAgent(ctx, old, d, spec, o)
	})
}

// agentSpec is the spec of a document with the ID of its sandbox.
func (a *app) agentSpec(ctx context.Context, d document) (*agboxv1.AgentSpec, error) {
	if errs := d.rules(); len(errs) > 0 {
		return nil, errs
	}
	sb, err := a.resolve(ctx, d.Agent.GetSandboxId())
	if err != nil {
		return nil, err
	}
	spec := proto.CloneOf(d.Agent)
	spec.SandboxId = sb.GetSandboxId()
	return spec, nil
}

func (a *app) createAgent(ctx context.Context, d document, spec *agboxv1.AgentSpec, done string) (*agboxv1.AgentHandle, error) {
	one, err := a.conn().CreateAgent(ctx, &agboxv1.CreateAgentRequest{Spec: spec, AgentId: uuid.NewString(), Name: d.Name})
	return printCreated(a, d, done, one, err)
}

// Paths of the fields that can change in place.
const (
	pathState   = "desired_state"
	pathSandbox = "sandbox_id"
)

// agentDifferences compares an agent with a spec. An absent desired_state is no difference, and the sandbox of an agent that moves
// is the one to which it moves.
func agentDifferences(old *agboxv1.AgentHandle, spec *agboxv1.AgentSpec) (changes []validate.Change, fixed []string) {
	before, after := proto.CloneOf(old.GetSpec()), proto.CloneOf(spec)
	before.DesiredState, before.SandboxId = old.GetDesiredState(), cmp.Or(old.GetMovesTo(), old.GetSandboxId())
	if after.GetDesiredState() == "" {
		after.DesiredState = before.DesiredState
	}
	changes = validate.DiffAgent(before, after)
	for _, one := range changes {
		if one.Path != pathState && one.Path != pathSandbox {
			fixed = append(fixed, one.Path)
		}
	}
	return changes, fixed
}

func (a *app) changeAgent(ctx context.Context, old *agboxv1.AgentHandle, d document, spec *agboxv1.AgentSpec, o applyOptions) (*agboxv1.AgentHandle, error) {
	changes, fixed := agentDifferences(old, spec)
	switch {
	case len(fixed) > 0 && o.replace:
		return a.replaceAgent(ctx, old, d, spec, fixed, o)
	case len(fixed) > 0:
		return nil, immutableError(d, fixed)
	case len(changes) == 0:
		fmt.Fprintf(a.Out, "agent/%s unchanged%s\n", d.Name, agentAside(old))
		return old, nil
	}
	if err := a.requestChanges(ctx, old.GetAgentId(), spec, changes); err != nil {
		return nil, err
	}
	fmt.Fprintf(a.Out, "agent/%s configured%s\n", d.Name, moveAside(d, changes))
	return a.conn().GetAgent(ctx, old.GetAgentId())
}

// requestChanges requests the changes in place. It returns errContended if the agent was deleted.
func (a *app) requestChanges(ctx context.Context, id string, spec *agboxv1.AgentSpec, changes []validate.Change) error {
	for _, one := range changes {
		var err error
		switch {
		case one.Path == pathSandbox:
			err = a.conn().MoveAgent(ctx, id, spec.GetSandboxId())
		case spec.GetDesiredState() == wantStopped:
			err = a.conn().StopAgent(ctx, id)
		default:
			err = a.conn().StartAgent(ctx, id)
		}
		switch {
		case client.IsNotFound(err), client.Reason(err) == "AGENT_INVALID_STATE" && one.Path != pathSandbox:
			return errContended
		case err != nil:
			return err
		}
	}
	return nil
}

// moveAside returns a note with the sandbox to which changes move an agent, or "".
func moveAside(d document, changes []validate.Change) string {
	if slices.ContainsFunc(changes, func(one validate.Change) bool { return one.Path == pathSandbox }) {
		return ", moves to sandbox/" + d.Agent.GetSandboxId()
	}
	return ""
}

// replaceAgent deletes the old agent and waits until its process has ended, so that two never work in one directory.
func (a *app) replaceAgent(ctx context.Context, old *agboxv1.AgentHandle, d document, spec *agboxv1.AgentSpec, fixed []string, o applyOptions) (*agboxv1.AgentHandle, error) {
	// A dry run finds other mistakes of the new agent before the old one is deleted; the name itself is still in use.
	if _, err := a.conn().CreateAgent(ctx, &agboxv1.CreateAgentRequest{Spec: spec, AgentId: uuid.NewString(), DryRun: true}); err != nil {
		return nil, err
	}
	fmt.Fprintf(a.Err, "replacing agent/%s (%s): its conversation is lost\n", d.Name, strings.Join(fixed, ", "))
	if err := a.conn().DeleteAgent(ctx, old.GetAgentId()); err != nil && !client.IsNotFound(err) {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if err := a.awaitAgent(waiting, old, string(client.AgentDeleted), o.timeout); err != nil {
		return nil, fmt.Errorf("%w; apply again to create it", err)
	}
	return a.createAgent(ctx, d, spec, "replaced")
}

// agentAside returns a note with the reason why an agent does not work and the command that helps, or "".
func agentAside(one *agboxv1.AgentHandle) string {
	switch {
	case client.AgentComesBack(one):
		return ""
	case one.GetNeedsAttention(), one.GetDesiredState() == wantStopped:
		return fmt.Sprintf(" (%s; \"agbox agent start %s\" starts it)", agentState(one), agentName(one))
	}
	return ""
}
