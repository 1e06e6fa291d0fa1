package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
)

// Verdicts on documents, as users read them.
const (
	verdictCreated    = "created"
	verdictConfigured = "configured"
	verdictUnchanged  = "unchanged"
	verdictReplaced   = "replaced"
	verdictRefused    = "refused" // it needs --replace
)

// plan is what applying a document does.
type plan struct {
	verdict string
	sandbox *agboxv1.SandboxHandle // the present one; nil if there is none, and for an agent
	agent   *agboxv1.AgentHandle   // the present one; nil if there is none, and for a sandbox
	spec    *agboxv1.AgentSpec     // of an agent, with the ID of its sandbox
	changes []validate.Change
	// immutable are the changed paths that need --replace.
	immutable []string
	// because are the daemon's sentences about those for which more than that is to be said.
	because []string
}

// planOf compares a document with the object that holds its name. A dry run has passed all checks, those of the daemon too; then
// declared are the sandboxes that the same manifests create.
func (a *app) planOf(ctx context.Context, d document, declared []string, o applyOptions) (p *plan, err error) {
	if d.Agent != nil {
		p, err = a.planAgent(ctx, d, declared, o.dryRun)
	} else {
		p, err = a.planSandbox(ctx, d, o.dryRun)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case p.sandbox == nil && p.agent == nil:
		p.verdict = verdictCreated
	case o.replace && (len(p.immutable) > 0 || p.sandbox.GetState() == agboxv1.SandboxState_SANDBOX_STATE_FAILED):
		p.verdict = verdictReplaced
	case len(p.immutable) > 0:
		p.verdict = verdictRefused
	case len(p.changes) == 0:
		p.verdict = verdictUnchanged
	default:
		p.verdict = verdictConfigured
	}
	return p, nil
}

func (a *app) planSandbox(ctx context.Context, d document, dryRun bool) (*plan, error) {
	if errs := d.rules(); dryRun && len(errs) > 0 {
		return nil, errs // UpdateSandbox does not check the names of services against the sandbox's
	}
	old, err := a.sandboxKind().holder(ctx, d.Name)
	if err != nil {
		return nil, err
	}
	p := &plan{sandbox: old, changes: validate.Diff(&agboxv1.CreateSpec{}, d.Spec)}
	switch {
	case old == nil && dryRun:
		return p, a.wouldCreate(ctx, d, p)
	case old == nil:
		return p, nil
	}
	_, err = a.conn().UpdateSandbox(ctx, &agboxv1.UpdateSandboxRequest{SandboxId: old.GetSandboxId(), CreateSpec: d.Spec, DryRun: true})
	p.changes, p.immutable = validate.Diff(old.GetSpec(), d.Spec), client.ImmutableFields(err)
	if len(p.immutable) > 0 {
		p.because, err = reasonsFor(err), nil
	}
	return p, err
}

// Texts with which the daemon refuses to change a field.
const (
	notInPlace = " cannot be changed in place"
	recreate   = `: delete and recreate ("agbox apply --replace")`
)

// reasonsFor returns the sentences of a refusal that say more than that a field cannot be changed, without the way out.
func reasonsFor(refusal error) (list []string) {
	for text := range strings.SplitSeq(refusal.Error(), "; ") {
		if why, ok := strings.CutSuffix(text, recreate); ok && !strings.HasSuffix(why, notInPlace) {
			list = append(list, why)
		}
	}
	return list
}

// refusal returns what cannot be done in place.
func (p *plan) refusal() string {
	plain := slices.DeleteFunc(slices.Clone(p.immutable), func(field string) bool {
		return slices.ContainsFunc(p.because, func(why string) bool { return strings.HasPrefix(why, field+" ") })
	})
	all := p.because
	if len(plain) > 0 {
		all = slices.Concat([]string{strings.Join(plain, ", ") + notInPlace}, all)
	}
	return strings.Join(all, "; ")
}

func (a *app) planAgent(ctx context.Context, d document, declared []string, dryRun bool) (*plan, error) {
	spec, err := a.agentSpec(ctx, d)
	var missing *notFoundError
	if dryRun && errors.As(err, &missing) && slices.Contains(declared, d.Agent.GetSandboxId()) {
		spec, err = d.Agent, nil // the sandbox has no ID yet; its name is used instead
	}
	if err != nil {
		return nil, err
	}
	old, err := a.agentKind().holder(ctx, d.Name)
	if err != nil {
		return nil, err
	}
	p := &plan{agent: old, spec: spec}
	switch {
	case old != nil:
		p.changes, p.immutable = agentDifferences(old, spec)
		return p, nil
	case dryRun && missing == nil:
		err = a.wouldCreate(ctx, d, p)
	}
	p.changes = newAgentFields(spec)
	return p, err
}

// newAgentFields returns the fields of a new agent, without defaults.
func newAgentFields(spec *agboxv1.AgentSpec) []validate.Change {
	fields := spec.ProtoReflect()
	return slices.DeleteFunc(validate.DiffAgent(nil, spec), func(one validate.Change) bool {
		fd := fields.Descriptor().Fields().ByTextName(one.Path)
		return fd != nil && !fields.Has(fd)
	})
}

// aside returns a note for the line that says what was done.
func (p *plan) aside(d document) string {
	switch {
	case d.Agent == nil:
		return aside(p.sandbox)
	case p.verdict == verdictUnchanged:
		return agentAside(p.agent)
	case p.verdict == verdictConfigured:
		return moveAside(d, p.changes)
	}
	return ""
}
