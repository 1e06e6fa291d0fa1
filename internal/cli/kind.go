package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/manifest"
)

// minPrefix is the shortest accepted start of an ID. Tables show 12 characters of long IDs.
const minPrefix = 4

// handle is what the handles of every kind have.
type handle interface {
	comparable
	GetName() string
	GetDesiredState() string
	GetLabels() map[string]string
}

// kind is one kind of objects, for the verbs that work alike on all of them: get, apply, wait, requests and completion.
type kind[H handle] struct {
	word  string // "sandbox", as in "sandbox/web"
	title string // that of manifests
	one   string // the argument that names an object, in usage texts
	id    func(H) string
	// list returns the objects that exist, newest first, without their specs. read returns one with its spec, also a deleted
	// sandbox while its history is kept.
	// Labels, if there are any, narrow the list.
	list func(ctx context.Context, labels map[string]string) ([]H, error)
	read func(context.Context, string) (H, error)
	// deleting reports whether an object is being deleted: its name is free.
	deleting func(H) bool
	// elsewhere reports whether ref names an object of another kind.
	elsewhere func(ctx context.Context, ref string) bool
	// parts are what a manifest has of an object beside its name and labels.
	parts func(H) (spec, status proto.Message)
	// table writes a table of objects, at least one; empty is the note that there are none.
	table func(ctx context.Context, found []H, wide bool) error
	empty string
	// wait returns when an object meets a condition, or an error that says why it does not. It passes a sandbox's events to pulls.
	wait func(ctx context.Context, one H, want string, pulls *pulls) (H, error)
	// facts are the state of an object and what keeps it from being as wanted.
	facts func(H) string
	// refused adds the state of the object to a refusal of verb.
	refused func(ctx context.Context, verb string, one H, err error) error
}

func (a *app) sandboxKind() kind[*agboxv1.SandboxHandle] {
	return kind[*agboxv1.SandboxHandle]{
		word: kindSandbox, title: manifest.Kind, one: "the name or ID of a sandbox", id: (*agboxv1.SandboxHandle).GetSandboxId,
		list: func(ctx context.Context, labels map[string]string) ([]*agboxv1.SandboxHandle, error) {
			return a.conn().ListSandboxes(ctx, false, labels)
		},
		read: func(ctx context.Context, id string) (*agboxv1.SandboxHandle, error) {
			return a.conn().GetSandbox(ctx, id)
		},
		deleting: func(sb *agboxv1.SandboxHandle) bool {
			return sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_DELETING || sb.GetDesiredState() == wantDeleted
		},
		elsewhere: func(ctx context.Context, ref string) bool {
			all, err := a.agents(ctx)
			return err == nil && a.agentKind().named(all, bare(kindAgent, ref)) != nil
		},
		parts: sandboxParts, wait: a.waitSandbox, facts: sandboxFacts, refused: a.sandboxRefused,
		table: a.printTable, empty: "no sandboxes; \"agbox apply -f FILE\" makes one",
	}
}

func (a *app) agentKind() kind[*agboxv1.AgentHandle] {
	return kind[*agboxv1.AgentHandle]{
		word: kindAgent, title: manifest.KindAgent, one: "the name or ID of an agent", id: (*agboxv1.AgentHandle).GetAgentId,
		list: func(ctx context.Context, labels map[string]string) ([]*agboxv1.AgentHandle, error) {
			return a.conn().ListAgents(ctx, "", labels)
		},
		read:     func(ctx context.Context, id string) (*agboxv1.AgentHandle, error) { return a.conn().GetAgent(ctx, id) },
		deleting: func(one *agboxv1.AgentHandle) bool { return one.GetDesiredState() == wantDeleted },
		elsewhere: func(ctx context.Context, ref string) bool {
			all, err := a.live(ctx)
			return err == nil && a.sandboxKind().named(all, bare(kindSandbox, ref)) != nil
		},
		parts: agentParts, wait: a.waitAgent, facts: agentFacts, refused: a.agentRefused,
		table: a.printAgents, empty: "no agents; \"agbox agent create --help\" shows how to create one",
	}
}

// live returns the sandboxes that are not deleted, newest first.
func (a *app) live(ctx context.Context) ([]*agboxv1.SandboxHandle, error) {
	return a.sandboxKind().list(ctx, nil)
}

// agents returns all agents, newest first, without their specs.
func (a *app) agents(ctx context.Context) ([]*agboxv1.AgentHandle, error) {
	return a.agentKind().list(ctx, nil)
}

// full is resolve with the spec.
func (k kind[H]) full(ctx context.Context, ref string) (H, error) {
	one, err := k.resolve(ctx, ref)
	if err != nil {
		return one, err
	}
	one, err = k.read(ctx, k.id(one))
	if client.IsNotFound(err) {
		err = k.notFound(ctx, ref)
	}
	return one, err
}

// withOne is the RunE of a command about one object, which find finds.
func withOne[H handle](find func(context.Context, string) (H, error), do func(context.Context, H) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		one, err := find(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return do(cmd.Context(), one)
	}
}

// resolve returns the object that ref names: by its name, by the name of one that is being deleted, by its ID, or by the first
// characters of its ID. The kind and a slash may precede it. A ref that is the name of one object and the ID of another is an error.
func (k kind[H]) resolve(ctx context.Context, ref string) (H, error) {
	var none H
	ref = bare(k.word, ref)
	all, err := k.list(ctx, nil)
	if err != nil {
		return none, err
	}
	byName, byID := k.named(all, ref), k.withID(all, ref)
	switch {
	case byName != none && byID != none && byName != byID:
		return none, fmt.Errorf("%q is ambiguous: the name of %s %s and the ID of another; use the ID of the one with the name, or the other's name",
			ref, k.word, k.id(byName))
	case byName != none:
		return byName, nil
	case byID != none:
		return byID, nil
	}
	var found []H
	for _, one := range all {
		if len(ref) >= minPrefix && strings.HasPrefix(k.id(one), ref) {
			found = append(found, one)
		}
	}
	switch len(found) {
	case 0:
	case 1:
		return found[0], nil
	default:
		return none, fmt.Errorf("%q is ambiguous: the IDs of %d %s start with it; write more of the ID", ref, len(found), k.word+"s")
	}
	one, err := k.read(ctx, ref)
	if client.IsNotFound(err) || client.IsInvalidArgument(err) {
		return none, k.notFound(ctx, ref)
	}
	return one, err
}

// selected returns the objects that a selector selects.
func (k kind[H]) selected(ctx context.Context, s *selector) ([]H, error) {
	equal, _ := s.equal()
	found, err := k.list(ctx, equal)
	return having(s, found), err
}

// noneSelected says that a selector selects nothing.
func (k kind[H]) noneSelected() string { return "no " + k.word + " has these labels" }

// having returns the objects whose labels a selector matches.
func having[H handle](s *selector, all []H) []H {
	return slices.DeleteFunc(all, func(one H) bool { return !s.matches(one.GetLabels()) })
}

// named returns the object of that name: one that stays, else the newest that is being deleted, else the zero handle.
func (k kind[H]) named(all []H, name string) (best H) {
	var none H
	for _, one := range all {
		switch {
		case one.GetName() == "" || one.GetName() != name:
		case !k.deleting(one):
			return one
		case best == none:
			best = one
		}
	}
	return best
}

// withID returns the object of that ID, or the zero handle.
func (k kind[H]) withID(all []H, id string) (found H) {
	if i := slices.IndexFunc(all, func(one H) bool { return k.id(one) == id }); i >= 0 {
		found = all[i]
	}
	return found
}

// holder returns the object that holds the name, with its spec, or the zero handle. One that is being deleted holds none.
func (k kind[H]) holder(ctx context.Context, name string) (H, error) {
	var none H
	all, err := k.list(ctx, nil)
	if err != nil {
		return none, err
	}
	one := k.named(all, name)
	if one == none || k.deleting(one) {
		return none, nil
	}
	one, err = k.read(ctx, k.id(one))
	if client.IsNotFound(err) {
		return none, nil // deleted and purged since
	}
	return one, err
}

// name is what users call an object: its name, or its ID if it has none.
func (k kind[H]) name(one H) string { return cmp.Or(one.GetName(), k.id(one)) }

// label is "sandbox/web".
func (k kind[H]) label(one H) string { return k.word + "/" + k.name(one) }

// nameOrID is kind.name for a sandbox, agentName that for an agent.
func nameOrID(sb *agboxv1.SandboxHandle) string { return cmp.Or(sb.GetName(), sb.GetSandboxId()) }

func agentName(one *agboxv1.AgentHandle) string { return cmp.Or(one.GetName(), one.GetAgentId()) }

// notFoundError says that ref names no object of a kind.
type notFoundError struct {
	kind, ref string
	elsewhere bool // ref names an object of the other kind
}

func (e *notFoundError) Error() string {
	switch {
	case e.kind == kindAgent && e.elsewhere:
		return fmt.Sprintf("%s is a sandbox, not an agent; \"agbox agent list --sandbox %s\" lists its agents", e.ref, e.ref)
	case e.kind == kindAgent:
		return fmt.Sprintf("agent %q not found; \"agbox agent list\" lists them", e.ref)
	case e.elsewhere:
		return fmt.Sprintf("%s is an agent, not a sandbox; \"agbox agent --help\" lists the commands for agents", e.ref)
	case kindOf(e.ref) == kindAgent:
		return fmt.Sprintf("sandbox %q not found; for agents use \"agbox agent\", such as \"agbox agent list\"", e.ref)
	}
	name, path, _ := strings.Cut(e.ref, ":")
	switch {
	case strings.HasPrefix(path, "/"):
		return fmt.Sprintf("sandbox %q not found; a name and a path are two arguments: %q", e.ref, name+" "+path)
	case slices.Contains(kindWords, e.ref):
		return fmt.Sprintf("sandbox %q not found; names follow without a word for their kind, as in \"agbox get web\"", e.ref)
	}
	return fmt.Sprintf("sandbox %q not found; \"agbox get\" lists them", e.ref)
}

// kindWords are the words for sandboxes that users of kubectl and docker put before a name.
var kindWords = []string{"sandbox", "sandboxes", "pod", "pods", "container", "containers"}

func (k kind[H]) notFound(ctx context.Context, ref string) error {
	if !k.elsewhere(ctx, ref) {
		return &notFoundError{kind: k.word, ref: ref}
	}
	_, name, ok := strings.Cut(ref, "/")
	if !ok {
		name = ref
	}
	return &notFoundError{kind: k.word, ref: name, elsewhere: true}
}

// isNotFound reports whether err says that a ref names no object of the kind.
func (k kind[H]) isNotFound(err error) bool {
	missing, ok := errors.AsType[*notFoundError](err)
	return ok && missing.kind == k.word
}

// names offers the names of the objects that are not on the line yet.
func (k kind[H]) names(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := k.list(cmd.Context(), nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, one := range all {
		if name := k.name(one); !slices.Contains(args, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// first is names for commands that take one object.
func (k kind[H]) first(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return perArgument(k.names)(cmd, args, typed)
}
