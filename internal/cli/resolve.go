package cli

import (
	"context"
	"fmt"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// minPrefix is the shortest accepted start of an ID. Tables show 12 characters of long IDs.
const minPrefix = 4

// live returns the sandboxes that are not deleted, newest first.
func (a *app) live(ctx context.Context) ([]*agboxv1.SandboxHandle, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	return c.ListSandboxes(ctx, false, nil)
}

// resolve returns the sandbox ref: by name among live sandboxes, by name among those being deleted, by ID, or by the start of an
// ID, with an optional "sandbox/" before it. A ref that is the name of one sandbox and the ID of another is an error.
func (a *app) resolve(ctx context.Context, ref string) (*agboxv1.SandboxHandle, error) {
	ref = bare(kindSandbox, ref)
	all, err := a.live(ctx)
	if err != nil {
		return nil, err
	}
	byName, byID := named(all, ref), withID(all, ref)
	switch {
	case byName != nil && byID != nil && byName != byID:
		return nil, fmt.Errorf("%q is ambiguous: the name of sandbox %s and the ID of another; use the ID of the one with the name, or the other's name",
			ref, byName.GetSandboxId())
	case byName != nil:
		return byName, nil
	case byID != nil:
		return byID, nil
	}
	return a.resolveElse(ctx, all, ref)
}

// resolveElse tries deleted sandboxes, which have only their ID, and starts of IDs.
func (a *app) resolveElse(ctx context.Context, all []*agboxv1.SandboxHandle, ref string) (*agboxv1.SandboxHandle, error) {
	var found []*agboxv1.SandboxHandle
	for _, sb := range all {
		if len(ref) >= minPrefix && strings.HasPrefix(sb.GetSandboxId(), ref) {
			found = append(found, sb)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%q is ambiguous: the IDs of %d sandboxes start with it; write more of the ID", ref, len(found))
	}
	sb, err := a.conn.GetSandbox(ctx, ref)
	if client.IsNotFound(err) || client.IsInvalidArgument(err) {
		return nil, a.notFound(ctx, ref)
	}
	return sb, err
}

// notFoundError means that no sandbox has the name or ID ref.
type notFoundError struct {
	ref string
	// agent is set if an agent has it.
	agent bool
}

func (e *notFoundError) Error() string {
	if e.agent {
		return fmt.Sprintf("%s is an agent, not a sandbox; \"agbox agent --help\" lists the commands for agents", e.ref)
	}
	if kindOf(e.ref) == kindAgent {
		return fmt.Sprintf("sandbox %q not found; for agents use \"agbox agent\", such as \"agbox agent list\"", e.ref)
	}
	return fmt.Sprintf("sandbox %q not found; \"agbox get\" lists them", e.ref)
}

func (a *app) notFound(ctx context.Context, ref string) error {
	all, err := a.agents(ctx)
	name := bare(kindAgent, ref)
	if err != nil || namedAgent(all, name) == nil {
		return &notFoundError{ref: ref}
	}
	return &notFoundError{ref: name, agent: true}
}

// named returns the sandbox of that name: a live one, else the newest that is being deleted, else nil.
func named(all []*agboxv1.SandboxHandle, name string) (best *agboxv1.SandboxHandle) {
	for _, sb := range all {
		switch {
		case sb.GetName() == "" || sb.GetName() != name:
		case sb.GetState() != agboxv1.SandboxState_SANDBOX_STATE_DELETING && sb.GetDesiredState() != wantDeleted:
			return sb
		case best == nil:
			best = sb
		}
	}
	return best
}

func withID(all []*agboxv1.SandboxHandle, id string) *agboxv1.SandboxHandle {
	for _, sb := range all {
		if sb.GetSandboxId() == id {
			return sb
		}
	}
	return nil
}

// nameOrID returns the sandbox's name, or its ID if it has none.
func nameOrID(sb *agboxv1.SandboxHandle) string {
	if sb.GetName() != "" {
		return sb.GetName()
	}
	return sb.GetSandboxId()
}
