package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// previewAgent compares a document that has passed all checks.
func (a *app) previewAgent(ctx context.Context, d document, declared []string) (preview, error) {
	spec, err := a.agentSpec(ctx, d)
	var missing *notFoundError
	if errors.As(err, &missing) && slices.Contains(declared, d.Agent.GetSandboxId()) {
		spec, err = d.Agent, nil // the sandbox has no ID yet; its name is used instead
	}
	if err != nil {
		return preview{}, err
	}
	old, err := a.agentKind().holder(ctx, d.Name)
	if err != nil {
		return preview{}, err
	}
	switch {
	case old == nil && missing != nil:
		return preview{absent: true, changes: newAgentFields(spec)}, nil
	case old == nil:
		_, err := a.conn().CreateAgent(ctx, &agboxv1.CreateAgentRequest{Spec: spec, AgentId: uuid.NewString(), Name: d.Name, DryRun: true})
		return preview{absent: true, changes: newAgentFields(spec)}, err
	}
	changes, fixed := agentDifferences(old, spec)
	return preview{changes: a.sandboxesByName(ctx, changes), immutable: fixed}, nil
}

// sandboxesByName replaces the sandbox IDs of changes by names, if there are any.
func (a *app) sandboxesByName(ctx context.Context, changes []validate.Change) []validate.Change {
	i := slices.IndexFunc(changes, func(one validate.Change) bool { return one.Path == pathSandbox })
	if i < 0 {
		return changes
	}
	all, err := a.live(ctx)
	if err != nil {
		return changes // keep the IDs
	}
	names := sandboxNames(all)
	changes[i].Old, changes[i].New = cmp.Or(names[changes[i].Old], changes[i].Old), cmp.Or(names[changes[i].New], changes[i].New)
	return changes
}

// newAgentFields returns the fields of a new agent, without defaults.
func newAgentFields(spec *agboxv1.AgentSpec) []validate.Change {
	changes := validate.DiffAgent(nil, spec)
	fields := spec.ProtoReflect()
	return slices.DeleteFunc(changes, func(one validate.Change) bool {
		fd := fields.Descriptor().Fields().ByTextName(one.Path)
		return fd != nil && !fields.Has(fd)
	})
}

// sandboxNamesOf returns the names of the sandboxes among the documents.
func sandboxNamesOf(docs []document) (list []string) {
	for _, d := range docs {
		if d.Agent == nil {
			list = append(list, d.Name)
		}
	}
	return list
}
