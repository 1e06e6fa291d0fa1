package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/execjournal"
	"github.com/agbox/agbox/internal/hostfiles"
)

// release looks at the mounts of the primary that was just started, and then lets its PID 1 begin. The engine looks up
// a mount's source by its path, and whoever can write to a part of that path may swap it at the right moment. A container
// that got something else is ended before anything of the sandbox's own has run in it, and started again for a while: a file
// that was replaced by a new version looks the same.
func (p *pass) release(ctx context.Context, s plan.Step) error {
	id := s.ID
	if id == "" {
		id = p.made[""]
	}
	if err := p.checkMounted(ctx, id); err != nil {
		if errdefs.IsUnavailable(err) {
			return err
		}
		return errors.Join(err, p.stopSwapped(ctx, id))
	}
	return p.cfg.Execs.Release(p.rec.ID)
}

func (p *pass) stopSwapped(ctx context.Context, id string) error {
	begun := time.Now()
	err := p.cfg.Engine.StopContainer(ctx, id, 0)
	p.audit(plan.Step{Kind: plan.StopContainer, Reason: plan.BecauseMountSwapped}, id, time.Since(begun), err)
	return err
}

func (p *pass) checkMounted(ctx context.Context, id string) error {
	var mounts []hostfiles.Mounted
	for _, m := range p.sb.Spec.GetMounts() {
		mounts = append(mounts, hostfiles.Mounted{Source: m.GetSource(), Target: m.GetTarget()})
	}
	for _, m := range p.sb.Desired.GetToolMounts() {
		mounts = append(mounts, hostfiles.Mounted{Source: m.GetSource(), Target: m.GetTarget()})
	}
	if len(mounts) == 0 || p.cfg.CheckMounted == nil {
		return nil
	}
	paths, err := p.cfg.Execs.Prepare(p.rec.ID)
	if err != nil {
		return err
	}
	d, err := p.cfg.Engine.InspectContainer(ctx, id)
	if err != nil {
		return err
	}
	if d.Pid <= 0 {
		return fmt.Errorf("the container ended while its mounts were looked at: %w", errdefs.ErrUnavailable)
	}
	known := hostfiles.Mounted{Source: paths.Ctl, Target: execjournal.ContainerCtl}
	seen, err := p.cfg.CheckMounted(d.Pid, known, mounts)
	if err == nil && !seen {
		p.log.Debug("mounts can't be seen from here and are not checked", "sandbox_id", p.rec.ID)
	}
	return err
}
