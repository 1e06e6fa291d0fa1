package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agbox/agbox/apis/enum"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// defaultWait is the default of --timeout; it is long enough for pulls of large images.
const defaultWait = 10 * time.Minute

type applyOptions struct {
	pruneOptions
	files                 manifestFiles
	wait, replace, dryRun bool
	timeout               time.Duration
	output                *output
}

func (a *app) applyCommand() *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use: "apply -f FILE", SuggestFor: []string{"create", "up"}, Short: "Create or change sandboxes and agents to match manifests",
		Long: `Create the sandboxes and agents of manifests, and change existing ones that differ. Labels, idle_ttl, timeout (counted from the
change), on_timeout, auto_resume, on_log_limit, cpu_limit, memory_limit, pids_limit, restart_policy and pull_policy change in place, the
last five also in services.
Any other change needs --replace, which deletes the sandbox with all its files and recreates it, also if it has FAILED. Its agents move to
the new sandbox with their conversations. If apply is interrupted, apply again. Of an agent, desired_state changes in place, and so does
sandbox_id, which moves the agent; for any other change --replace recreates the agent without its conversation. Sandboxes are applied
before agents, in any order of the manifests.

Sources of mounts and copies, and files of secrets, are paths on the host of the daemon, and built-in tools use the files of its user. With
a host ssh:// or tcp:// they must be absolute: "~" is refused.

With --prune, and after everything was applied and with --wait is ready, the sandboxes and agents that -l or --all select and the manifests lack
are deleted. Those without a name and those of "agbox run" stay. Agents in a pruned sandbox that are not selected are kept with their
conversations for the next sandbox of its name, as its named volumes are. All manifests must match -l. "--dry-run" shows what would be deleted.`,
		Example: "  agbox apply -f hello.yaml --wait\n  cat *.yaml | agbox apply -f -\n  agbox apply -f hello.yaml --dry-run\n  agbox apply -f hello.yaml --replace\n  agbox apply -R -f team-a/ --prune -l team=a --dry-run",
		Args:    onlyFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.wait && o.dryRun {
				return usagef(cmd, "--dry-run changes nothing, so --wait has nothing to wait for")
			}
			if o.output.given() && o.dryRun {
				return usagef(cmd, "--dry-run prints what would be done, -o the objects: one of the two")
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			docs, err := a.manifests(cmd, o.files)
			if err != nil {
				return err
			}
			return a.apply(cmd.Context(), docs, o)
		},
	}
	a.fileFlag(cmd, &o.files)
	cmd.Flags().BoolVar(&o.wait, "wait", false, "return once all sandboxes are READY and all agents run, also those of replaced sandboxes")
	cmd.Flags().BoolVar(&o.replace, "replace", false, "delete and recreate sandboxes and agents that have FAILED or can't be changed in place; files are lost")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "check, and print what would be done; change nothing")
	cmd.Flags().Var(quantity.NewDurationFlag(&o.timeout, defaultWait), "timeout", "with --wait and --replace: give up waiting after this long")
	a.pruneFlags(cmd, &o.pruneOptions)
	o.output = outputFlag(cmd, objectFormats[1:]...)
	return cmd
}

func (a *app) fileFlag(cmd *cobra.Command, files *manifestFiles) {
	cmd.Flags().StringArrayVarP(&files.paths, "filename", "f", nil, "manifests: a file, a directory, or - for standard input; repeatable")
	cmd.Flags().BoolVarP(&files.recursive, "recursive", "R", false, "with -f: also the subdirectories of directories")
	onFlag(cmd, "filename", completeManifests)
}

func onlyFiles(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "unexpected argument %q; manifests are given with -f", args[0])
	}
	return nil
}

// manifests reads the files of -f.
func (a *app) manifests(cmd *cobra.Command, files manifestFiles) ([]document, error) {
	if len(files.paths) == 0 {
		return nil, usagef(cmd, "-f is required: a file, a directory, or - for standard input")
	}
	return a.readManifests(cmd.Context(), files)
}

// apply is applyAll. With -o it prints what was done to stderr, and the objects to stdout.
func (a *app) apply(ctx context.Context, docs []document, o applyOptions) error {
	there := &applied{declared: sandboxNamesOf(docs)}
	if !o.output.given() {
		return a.applyAll(ctx, docs, o, there)
	}
	reporting := *a
	reporting.Out = a.Err
	err := reporting.applyAll(ctx, docs, o, there)
	if client.IsUnavailable(err) || ctx.Err() != nil {
		return err
	}
	return cmp.Or(a.printApplied(ctx, there, o.output, len(docs) == 1), err)
}

// applyAll handles every document even if one is refused, then waits for the others. It prunes if nothing failed.
func (a *app) applyAll(ctx context.Context, docs []document, o applyOptions, there *applied) error {
	if err := a.unselected(docs, o.pruneOptions); err != nil {
		return err
	}
	failed, err := forEach(ctx, sandboxesFirst(docs), func(d document) error { return a.applyDocument(ctx, d, o, there) },
		func(d document, err error) { a.complainOf(d, there.refuse(d, err)) })
	if err != nil {
		return err
	}
	a.warnEngine(ctx)
	if o.wait {
		failed = a.waitWithoutRequest(ctx, there.sandboxes, client.Ready, o.timeout) || failed
		failed = a.waitApplied(ctx, there, o.timeout) || failed
	}
	if err := outcomeOf(ctx, failed); err != nil || !o.prune {
		a.hint(textIf(o.prune, "nothing is pruned, because not everything was applied"))
		return err
	}
	return a.prune(ctx, docs, o)
}

// errContended says that another client has taken or freed the name since it was looked up.
var errContended = errors.New("the name changed hands twice during this apply; stop other clients that create and delete it, then apply again")

// applyDocument tries once more if another client takes or frees the name meanwhile.
func (a *app) applyDocument(ctx context.Context, d document, o applyOptions, there *applied) error {
	err := a.applyOnce(ctx, d, o, there)
	if errors.Is(err, errContended) {
		err = a.applyOnce(ctx, d, o, there)
	}
	return err
}

func (a *app) applyOnce(ctx context.Context, d document, o applyOptions, there *applied) error {
	p, err := a.planOf(ctx, d, there.declared, o)
	switch {
	case err != nil && !o.dryRun && gone(err):
		return errContended
	case err != nil:
		return err
	case o.dryRun:
		return a.rehearse(ctx, d, p)
	}
	switch p.verdict {
	case verdictRefused:
		return immutableError(d, p)
	case verdictConfigured:
		err = a.configure(ctx, d, p)
	case verdictReplaced:
		if err = a.makeRoom(ctx, d, p, o, there); err == nil {
			err = a.create(ctx, d, p)
		}
	case verdictCreated:
		err = a.create(ctx, d, p)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s/%s %s%s\n", d.kind(), d.Name, p.verdict, p.aside(d))
	if d.Agent != nil {
		there.agents = append(there.agents, p.agent)
	} else {
		there.sandboxes = append(there.sandboxes, p.sandbox)
	}
	return nil
}

// rehearse prints what applyOnce would do.
func (a *app) rehearse(ctx context.Context, d document, p *plan) error {
	what := p.verdict
	if what == verdictConfigured {
		what += moveAside(d, p.changes)
	}
	fmt.Fprintf(a.Out, "%s/%s %s (dry run)\n", d.kind(), d.Name, what)
	a.printChanges(ctx, p)
	switch {
	case p.verdict == verdictRefused:
		return immutableError(d, p)
	case p.verdict != verdictReplaced || d.Agent != nil:
		return nil
	}
	housed, err := a.housed(ctx)
	if agents := housed[p.sandbox.GetSandboxId()]; len(agents) > 0 {
		fmt.Fprintf(a.Out, "  %s\n", comeAlong(agents))
	}
	return err
}

// create creates the object of a document.
func (a *app) create(ctx context.Context, d document, p *plan) (err error) {
	if d.Agent != nil {
		p.agent, err = a.conn().CreateAgent(ctx, &agboxv1.CreateAgentRequest{Spec: p.spec, AgentId: uuid.NewString(), Name: d.Name})
	} else {
		p.sandbox, err = a.conn().CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: d.Spec, SandboxId: uuid.NewString(), Name: d.Name})
	}
	switch client.Reason(err) {
	case "SANDBOX_NAME_ALREADY_EXISTS", "AGENT_NAME_ALREADY_EXISTS":
		return errContended
	}
	return err
}

// configure requests the changes, all of which can be made in place.
func (a *app) configure(ctx context.Context, d document, p *plan) (err error) {
	if d.Agent != nil {
		id := p.agent.GetAgentId()
		if err := a.requestChanges(ctx, id, p.spec, p.changes); err != nil {
			return err
		}
		p.agent, err = a.conn().GetAgent(ctx, id)
		return err
	}
	resp, err := a.conn().UpdateSandbox(ctx, &agboxv1.UpdateSandboxRequest{SandboxId: p.sandbox.GetSandboxId(), CreateSpec: d.Spec})
	p.sandbox = resp.GetSandbox()
	if err != nil && gone(err) {
		return errContended
	}
	return err
}

// gone reports whether the sandbox was deleted since the lookup.
func gone(err error) bool {
	return client.IsNotFound(err) || client.Reason(err) == "SANDBOX_INVALID_STATE"
}

func immutableError(d document, p *plan) error {
	lost := "sandbox with its files"
	if d.Agent != nil {
		lost = "agent with its conversation"
	}
	return fmt.Errorf("%s; \"agbox diff -f %s\" shows the difference, \"agbox apply --replace -f %s\" deletes the %s and recreates it",
		p.refusal(), d.file, d.file, lost)
}

// aside adds what keeps a sandbox from being READY, and the way out.
func aside(sb *agboxv1.SandboxHandle) string {
	switch state := sb.GetState(); {
	case sandboxstate.IsResumable(state):
		return fmt.Sprintf(" (%s; %s)", enum.Word(state), resumeHint(sb))
	case state == agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		return fmt.Sprintf(" (FAILED, %s; \"agbox apply --replace\" recreates it)", sb.GetErrorCode())
	}
	return ""
}
