package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/hostfiles"
)

// release checks the mounts of the primary that was just started, and then lets PID 1 continue. The engine resolves the source of a mount
// by its path, and anyone who can write to a part of that path may swap it at the right moment. A container with a wrong mount is ended
// before anything of the sandbox has run in it, and is started again for a while: a file that was replaced by a new version looks the same.
// A primary that was already released in this run is not checked again: the sandbox's own processes run in it by then.
func (p *pass) release(ctx context.Context, s plan.Step) error {
	if p.sb.Desired.GetAdopted() != nil {
		return nil // its PID 1 is the image's own and waits for nothing
	}
	if done, err := p.o.Files.Released(p.rec.ID); done || err != nil {
		return err
	}
	id := cmp.Or(s.ID, p.made[""])
	swapped, err := p.checkMounted(ctx, id)
	if swapped {
		return errors.Join(err, p.turnDown(ctx, id))
	}
	if err != nil {
		return err // no verdict yet
	}
	if err := p.proveRuntime(ctx, id); err != nil {
		return err
	}
	return p.o.Files.Release(p.rec.ID)
}

// turnDown ends a primary that was not released. It first records the primary as never started: otherwise its end would count as the end of
// its main process.
func (p *pass) turnDown(ctx context.Context, id string) error {
	if p.progress.GetPrimaryStarted() {
		progress := proto.CloneOf(p.progress)
		progress.PrimaryStarted = false
		if err := ignoreAborted(p.report(ctx, plan.Report{Progress: progress})); err != nil {
			return err
		}
	}
	step := plan.Step{Kind: plan.StopContainer, Reason: plan.BecauseMountSwapped}
	return p.audited(step, id, func(ctx context.Context) error { return p.o.Engine.StopContainer(ctx, id, 0) })(ctx)
}

// checkMounted compares the mounts with their sources. swapped is the verdict that a mount differs, with the error that says so; any other
// error is not a verdict.
func (p *pass) checkMounted(ctx context.Context, id string) (swapped bool, err error) {
	var mounts []hostfiles.Mounted
	for _, m := range p.userMounts() {
		mounts = append(mounts, hostfiles.Mounted{Source: m.Source, Target: m.Target})
	}
	if len(mounts) == 0 || p.o.CheckMounted == nil {
		return false, nil
	}
	paths, err := p.o.Files.Prepare(p.rec.ID)
	if err != nil {
		return false, err
	}
	d, err := p.o.Engine.InspectContainer(ctx, id)
	if err != nil {
		return false, err
	}
	if d.Pid <= 0 {
		return false, fmt.Errorf("the container ended while its mounts were being checked: %w", errdefs.ErrUnavailable)
	}
	known := hostfiles.Mounted{Source: paths.Ctl, Target: execjournal.ContainerCtl}
	seen, err := p.o.CheckMounted(d.Pid, known, mounts)
	if err == nil && !seen {
		p.log.Debug("mounts can't be seen from here and are not checked", "sandbox_id", p.rec.ID)
	}
	return err != nil && !errdefs.IsUnavailable(err), err
}

// proofTimeout bounds the proof of a runtime, counted from the first inspection of the container's process. A gVisor container on a busy
// machine takes some seconds.
const proofTimeout = time.Minute

// trustedRuntime is the engine's own runtime. It needs no proof unless a spec names it.
const trustedRuntime = "runc"

// doubtsRuntime reports whether the runtime of a new primary has to be proven. Before the engine has reported its default runtime the
// answer is false unless the spec names one: no container is created then.
func (p *pass) doubtsRuntime() bool { return p.sb.Spec.GetRuntime() != "" || p.doubtsDefault() }

// doubtsDefault reports whether the engine's default runtime, which services have, is another one than its own.
func (p *pass) doubtsDefault() bool {
	byDefault := p.o.Link.Info().DefaultRuntime
	return byDefault != "" && byDefault != trustedRuntime
}

// proveRuntime checks, before anything of the sandbox runs, that the runtime of its primary can run commands: one command runs by the same
// path as every exec, and reaches the engine's DNS server if there are services. agboxd knows from files alone whether an exec is running,
// so the proof also finds out which files show it. Containers on runc by default skip the proof. Errors: ErrInvalidArgument is the verdict
// that the runtime cannot run commands; ErrUnavailable means not known yet, and so does any error of the engine.
func (p *pass) proveRuntime(ctx context.Context, id string) error {
	if !p.probes() {
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
	p.scratch.Change(p.rec.ID, func(m *memory) { m.proof.start(before.Pid, now) })
	proof, err := p.o.Files.Prove(p.rec.ID, execjournal.Container{ID: before.ID, Pid: before.Pid, NeedsNames: len(p.rec.Wanted.Services) > 0, HasFile: func(path string) (bool, error) {
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
		p.scratch.Change(p.rec.ID, func(m *memory) { m.proof = HookWait{} })
		return nil
	}
	if took := time.Since(p.scratch.Get(p.rec.ID).proof.since(before.Pid)); proof.Refused == "" && took > proofTimeout {
		proof.Refused = fmt.Sprintf("after %s %s", proofTimeout, proof.Awaited)
	}
	if proof.Refused == "" {
		p.o.Queue.AddAfter(p.rec.ID, proofTimeout) // only this timer enqueues the pass that gives up
		return fmt.Errorf("runtime %s is not proven yet: %s: %w", before.Runtime, proof.Awaited, errdefs.ErrUnavailable)
	}
	after, err := p.o.Engine.InspectContainer(ctx, id)
	switch {
	case err != nil:
		return err
	case !after.Running || after.Pid != before.Pid || !after.StartedAt.Equal(before.StartedAt):
		return fmt.Errorf("the container ended before its runtime was proven: %w", errdefs.ErrUnavailable)
	}
	p.scratch.Change(p.rec.ID, func(m *memory) { m.proof = HookWait{} })
	return fmt.Errorf("runtime %s can't be used: %s; choose another runtime: %w", before.Runtime, proof.Refused, errdefs.ErrInvalidArgument)
}

// probes reports whether the primary was created with ProbeFlag, by this pass or before it.
func (p *pass) probes() bool {
	if c := plan.PartOf(p.rec, p.w, ""); c != nil {
		return c.Probes
	}
	return p.doubtsRuntime()
}
