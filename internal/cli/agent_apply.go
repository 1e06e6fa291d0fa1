package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

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

// agentSpec is the spec of a document with the ID of its sandbox.
func (a *app) agentSpec(ctx context.Context, d document) (*agboxv1.AgentSpec, error) {
	if errs := d.rules(); len(errs) > 0 {
		return nil, errs
	}
	sb, err := a.sandboxKind().resolve(ctx, d.Agent.GetSandboxId())
	if err != nil {
		return nil, err
	}
	spec := proto.CloneOf(d.Agent)
	spec.SandboxId = sb.GetSandboxId()
	return spec, nil
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
	after.DesiredState = cmp.Or(after.DesiredState, before.DesiredState)
	changes = validate.DiffAgent(before, after)
	for _, one := range changes {
		if one.Path != pathState && one.Path != pathSandbox {
			fixed = append(fixed, one.Path)
		}
	}
	return changes, fixed
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
	moves := slices.ContainsFunc(changes, func(one validate.Change) bool { return one.Path == pathSandbox })
	return textIf(moves, ", moves to sandbox/"+d.Agent.GetSandboxId())
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
