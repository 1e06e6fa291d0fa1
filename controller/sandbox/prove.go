package sandbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// proofTimeout bounds the proof, from the first look at a container's process on. A gVisor container on a busy machine takes some
// seconds.
const proofTimeout = time.Minute

// trustedRuntime is the engine's own, which needs no proof unless a spec names it.
const trustedRuntime = "runc"

// doubtsRuntime reports whether the runtime of a new primary has to be proven. While the engine has not told its default, it is not
// doubted: no container is made then.
func (p *pass) doubtsRuntime() bool {
	byDefault := p.o.Link.Info().DefaultRuntime
	return p.sb.Spec.GetRuntime() != "" || byDefault != "" && byDefault != trustedRuntime
}

// proveRuntime makes sure, before anything of the sandbox runs, that the runtime of its primary can run commands: one does, by the path
// of all execs, and reaches the engine's DNS server where there are services. Whether an exec lives is known from files alone, so the proof also finds out how. Containers of runc by default are not
// asked and pay nothing. Errors: invalid argument is the verdict that it can't; unavailable: not known yet, and so is whatever the
// engine answers.
func (p *pass) proveRuntime(ctx context.Context, s plan.Step, id string) error {
	if !p.probes(s) {
		return nil
	}
	before, err := p.o.Engine.InspectContainer(ctx, id)
	if err != nil {
		return err
	}
	if !before.Running || before.Pid <= 0 {
		return fmt.Errorf("the container ended before its runtime was proven: %w", errdefs.ErrUnavailable)
	}
	now := time.Now()
	p.scratch.change(p.rec.ID, func(s *scratch) { s.proof.begin(before.Pid, now) })
	proof, err := p.o.Files.Prove(p.rec.ID, execjournal.Container{ID: before.ID, Pid: before.Pid, NeedsNames: p.hasServices(), HasFile: func(path string) (bool, error) {
		_, err := p.o.Engine.StatPath(ctx, before.ID, path)
		if errdefs.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	}})
	if err != nil {
		return err
	}
	if proof.Proven {
		p.scratch.change(p.rec.ID, func(s *scratch) { s.proof = HookWait{} })
		return nil
	}
	if took := time.Since(p.scratch.get(p.rec.ID).proof.since(before.Pid)); proof.Refused == "" && took > proofTimeout {
		proof.Refused = fmt.Sprintf("after %s %s", proofTimeout, proof.Awaited)
	}
	if proof.Refused == "" {
		p.o.Queue.AddAfter(p.rec.ID, proofTimeout) // nothing else brings the pass that gives up
		return fmt.Errorf("runtime %s is not proven yet: %s: %w", before.Runtime, proof.Awaited, errdefs.ErrUnavailable)
	}
	after, err := p.o.Engine.InspectContainer(ctx, id)
	switch {
	case err != nil:
		return err
	case !after.Running || after.Pid != before.Pid || !after.StartedAt.Equal(before.StartedAt):
		return fmt.Errorf("the container ended before its runtime was proven: %w", errdefs.ErrUnavailable)
	}
	p.scratch.change(p.rec.ID, func(s *scratch) { s.proof = HookWait{} })
	return fmt.Errorf("runtime %s can't be used: %s; choose another runtime: %w", before.Runtime, proof.Refused, errdefs.ErrInvalidArgument)
}

// hasServices reports whether commands of the sandbox may reach services by their names.
func (p *pass) hasServices() bool {
	return len(p.sb.Spec.GetRequiredServices())+len(p.sb.Spec.GetOptionalServices()) > 0
}

// probes reports whether the primary of the step was made to prove its runtime.
func (p *pass) probes(s plan.Step) bool {
	if s.ID == "" {
		return slices.Contains(p.entrypoint(), ProbeFlag) // made in this pass
	}
	for _, c := range p.w.Containers {
		if c.ID == s.ID {
			return c.Probes
		}
	}
	return false
}
