package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// defaultWait bounds waits on the command line; pulls of large images fit.
const defaultWait = 10 * time.Minute

func (a *app) applyCommand() *cobra.Command {
	var files []string
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "apply -f FILE", SuggestFor: []string{"create", "run", "up"}, Short: "Create sandboxes from manifests; leave those that are as written",
		Example: "  agbox apply -f hello.yaml --wait\n  cat *.yaml | agbox apply -f -",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(cmd, "unexpected argument %q; manifests are given with -f", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usagef(cmd, "-f is required: a file, a directory, or - for standard input")
			}
			docs, err := a.readManifests(cmd.Context(), files)
			if err != nil {
				return err
			}
			return a.apply(cmd.Context(), docs, wait, timeout)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "file, directory, or - for standard input; repeatable")
	cmd.Flags().BoolVar(&wait, "wait", false, "return once all are READY")
	cmd.Flags().DurationVar(&timeout, "timeout", defaultWait, "with --wait: give up after this long")
	return cmd
}

// apply handles every document even when one is refused, then waits for those that are there.
func (a *app) apply(ctx context.Context, docs []document, wait bool, timeout time.Duration) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	failed := false
	var ids []*agboxv1.SandboxHandle
	for _, d := range docs {
		sb, err := a.applyOne(ctx, c, d)
		if client.IsUnavailable(err) || ctx.Err() != nil {
			return err // the next one would meet the same
		}
		if err != nil {
			a.complain(fmt.Errorf("sandbox %s (%s, line %d): %w", d.Name, d.file, d.Line, err))
			failed = true
			continue
		}
		ids = append(ids, sb)
	}
	a.warnEngine(ctx, c)
	if wait {
		failed = a.waitAll(ctx, c, ids, client.Ready, timeout) || failed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if failed {
		return &exitError{code: exitFailed}
	}
	return nil
}

// applyOne creates the sandbox, or compares with the one that has the name. A name that another apply takes in between
// leads to one more comparison.
func (a *app) applyOne(ctx context.Context, c *client.Client, d document) (*agboxv1.SandboxHandle, error) {
	for range 2 {
		old, err := a.holder(ctx, c, d.Name)
		if err != nil {
			return nil, err
		}
		if old != nil {
			return old, a.compare(old, d)
		}
		sb, err := c.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: d.Spec, SandboxId: uuid.NewString(), Name: d.Name})
		if err == nil {
			fmt.Fprintf(a.Out, "sandbox/%s created\n", d.Name)
			return sb, nil
		}
		if client.Reason(err) != "SANDBOX_NAME_ALREADY_EXISTS" {
			return nil, err
		}
	}
	return nil, errors.New("its name comes and goes; is somebody else applying and deleting it?")
}

// holder returns the sandbox that holds the name, with its spec, or nil. One that is being deleted holds none.
func (a *app) holder(ctx context.Context, c *client.Client, name string) (*agboxv1.SandboxHandle, error) {
	all, err := a.live(ctx)
	if err != nil {
		return nil, err
	}
	sb := named(all, name)
	if sb == nil || sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_DELETING || sb.GetDesiredState() == wantDeleted {
		return nil, nil
	}
	return c.GetSandbox(ctx, sb.GetSandboxId())
}

func (a *app) compare(old *agboxv1.SandboxHandle, d document) error {
	changed := changedFields(old.GetSpec(), d.Spec)
	if len(changed) > 0 {
		return fmt.Errorf("changed: %s; a sandbox cannot be changed in place yet: \"agbox delete %s\", then apply again",
			strings.Join(changed, ", "), d.Name)
	}
	fmt.Fprintf(a.Out, "sandbox/%s unchanged%s\n", d.Name, aside(old))
	return nil
}

// aside adds what keeps an unchanged sandbox from being READY, and the way out.
func aside(sb *agboxv1.SandboxHandle) string {
	switch sb.GetState() {
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		return fmt.Sprintf(" (STOPPED; \"agbox resume %s\" starts it)", sb.GetName())
	case agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		return fmt.Sprintf(" (FAILED, %s; \"agbox delete %s\", then apply again)", sb.GetErrorCode(), sb.GetName())
	}
	return ""
}
