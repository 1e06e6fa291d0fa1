package sandbox

import (
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
	if done, err := p.o.Files.Released(p.rec.ID); done || err != nil {
		return err
	}
	id := s.ID
	if id == "" {
		id = p.made[""]
	}
	swapped, err := p.checkMounted(ctx, id)
	if swapped {
		return errors.Join(err, p.turnDown(ctx, id))
	}
	if err != nil {
		return err // no verdict yet
	}
	if err := p.proveRuntime(ctx, s, id); err != nil {
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
		if err := settled(p.report(ctx, plan.Report{Progress: progress})); err != nil {
			return err
		}
	}
	begun := time.Now()
	err := p.o.Engine.StopContainer(ctx, id, 0)
	p.audit(plan.Step{Kind: plan.StopContainer, Reason: plan.BecauseMountSwapped}, id, time.Since(begun), err)
	return err
}

// checkMounted compares the mounts with their sources. swapped is the verdict that a mount differs, with the error that says so; any other
// error is not a verdict.
func (p *pass) checkMounted(ctx context.Context, id string) (swapped bool, err error) {
	var mounts []hostfiles.Mounted
	for _, m := range p.sb.Spec.GetMounts() {
		mounts = append(mounts, hostfiles.Mounted{Source: m.GetSource(), Target: m.GetTarget()})
	}
	for _, m := range p.sb.Desired.GetToolMounts() {
		mounts = append(mounts, hostfiles.Mounted{Source: m.GetSource(), Target: m.GetTarget()})
	}
	for _, c := range p.sb.Desired.GetConfinement().GetCovers() {
		mounts = append(mounts, hostfiles.Mounted{Source: p.coverSource(c), Target: c.GetTarget()})
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
		return false, fmt.Errorf("the container ended while its mounts were looked at: %w", errdefs.ErrUnavailable)
	}
	known := hostfiles.Mounted{Source: paths.Ctl, Target: execjournal.ContainerCtl}
	seen, err := p.o.CheckMounted(d.Pid, known, mounts)
	if err == nil && !seen {
		p.log.Debug("mounts can't be seen from here and are not checked", "sandbox_id", p.rec.ID)
	}
	return err != nil && !errdefs.IsUnavailable(err), err
}
