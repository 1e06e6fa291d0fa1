package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/execjournal"
)

// proveFlag has PID 1 prove that its runtime can run commands. Containers that were made without it are not asked.
const proveFlag = "--prove"

// proveRuntime makes sure, before anything runs, that a runtime which the spec names can run commands: PID 1 has set up what its
// supervisors need, and holds a lock that can be seen from here. The daemon tells by that lock alone whether an exec is alive. The engine's default
// runtime needs no proof of its own and is not slowed down. Errors: invalid argument is the verdict that it can't; unavailable: not
// known yet, and so is whatever the engine answers.
func (p *pass) proveRuntime(ctx context.Context, id string) error {
	runtime := p.sb.Spec.GetRuntime()
	if runtime == "" {
		return nil
	}
	before, err := p.cfg.Engine.InspectContainer(ctx, id)
	if err != nil || !slices.Contains(before.Entrypoint, proveFlag) {
		return err
	}
	proof, err := p.cfg.Execs.Proven(p.rec.ID)
	switch {
	case err != nil:
		return err
	case proof == execjournal.ProofHeld:
		return nil
	}
	after, err := p.cfg.Engine.InspectContainer(ctx, id)
	switch {
	case err != nil:
		return err
	case proof == execjournal.ProofMissing || !after.Running || after.Pid != before.Pid || !after.StartedAt.Equal(before.StartedAt):
		return fmt.Errorf("PID 1 has not proven yet that runtime %s can run commands: %w", runtime, errdefs.ErrUnavailable)
	}
	return fmt.Errorf("runtime %s can't be used: it keeps file locks inside the sandbox, so agbox could not tell whether a command is alive; "+
		"choose another runtime, or leave it out for the engine's default: %w", runtime, errdefs.ErrInvalidArgument)
}
