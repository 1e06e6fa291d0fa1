package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/naming"
	"github.com/agbox/agbox/store"
)

// waitingError ends a pass that waits for a background operation. It is no failure.
type waitingError struct{ what string }

func (e *waitingError) Error() string { return e.what }

func waits(err error) bool {
	var w *waitingError
	return errors.As(err, &w)
}

// pass carries what earlier steps of the same pass have made.
type pass struct {
	*Controller
	rec plan.Record
	sb  store.Sandbox
	w   plan.World

	image     dockerx.Image
	networkID string
	primaryID string
}

// act takes the steps in order, up to the first error.
func (c *Controller) act(ctx context.Context, rec plan.Record, sb store.Sandbox, w plan.World, steps []plan.Step) error {
	p := &pass{Controller: c, rec: rec, sb: sb, w: w}
	for _, s := range steps {
		err := p.take(ctx, s)
		if !waits(err) {
			c.cfg.Metrics.Step(string(s.Kind), err)
		}
		if err != nil {
			return p.classify(s, err)
		}
		p.audit(s)
	}
	return nil
}

func (p *pass) take(ctx context.Context, s plan.Step) error {
	id := p.rec.ID
	switch s.Kind {
	case plan.MakeInputs:
		_, err := p.cfg.Execs.Prepare(id)
		return err
	case plan.EnsureImage:
		return p.ensureImage(ctx)
	case plan.CreateNetwork:
		return p.createNetwork(ctx)
	case plan.CreatePrimary:
		return p.createPrimary(ctx, s.ID)
	case plan.StartContainer:
		return p.start(ctx, s.ID)
	case plan.CancelExecs:
		p.wakeExecsOf(id)
		return nil
	case plan.StopContainer:
		return p.stop(ctx, s.ID)
	case plan.RemoveContainer:
		return p.cfg.Engine.RemoveContainer(ctx, s.ID)
	case plan.RemoveNetwork:
		return p.cfg.Engine.RemoveNetwork(ctx, s.ID)
	case plan.RemoveInputs:
		return p.cfg.Execs.RemoveInputs(id)
	case plan.RemoveFiles:
		return p.cfg.Execs.Remove(id)
	case plan.StopIdle:
		_, err := p.cfg.Store.RequestIdleStop(ctx, id, p.idleTTL(p.sb))
		return err
	}
	return fmt.Errorf("unknown step %s", s.Kind)
}

// audit leaves a line for what was removed although no client asked for it.
func (p *pass) audit(s plan.Step) {
	if s.Why == "" {
		return
	}
	if p.rec.Standing == plan.Gone {
		p.cfg.Metrics.OrphanRemoved()
	}
	p.log.Warn("audit", "sandbox_id", p.rec.ID, "step", string(s.Kind), "object_id", s.ID, "reason", s.Why)
}

// ensureImage finds the image or has it pulled in the background. Pulls of one image are shared by the engine port.
func (p *pass) ensureImage(ctx context.Context) error {
	ref := p.sb.Spec.GetImage()
	image, err := p.cfg.Engine.InspectImage(ctx, ref)
	failure := p.ops.failure(p.rec.ID, plan.EnsureImage)
	switch {
	case !errdefs.IsNotFound(err): // also when somebody brought it after a pull that failed
		p.image = image
		return err
	case failure != nil:
		return failure
	}
	p.ops.start(ctx, p.rec.ID, plan.EnsureImage, func(ctx context.Context) error {
		_, err := p.cfg.Engine.EnsureImage(ctx, ref, dockerx.PullOptions{})
		return err
	})
	return &waitingError{"pulling image " + ref}
}

func (p *pass) createNetwork(ctx context.Context) error {
	spec := dockerx.NetworkSpec{Name: naming.Network(p.rec.ID), Labels: p.labels(naming.ComponentNetwork)}
	n, err := p.cfg.Engine.CreateNetwork(ctx, spec)
	if errdefs.IsAlreadyExists(err) {
		return taken("network", spec.Name)
	}
	p.networkID = n.ID
	return err
}

// taken is the error for a name that an object has which is not known to be ours. Either it is from our own create, whose
// reply was lost, and the next pass finds it by its labels; or it is somebody else's, which is not touched.
func taken(what, name string) error {
	return fmt.Errorf("the name %s is taken by a %s that is not of this sandbox: %w", name, what, errdefs.ErrUnavailable)
}

func (p *pass) createPrimary(ctx context.Context, networkID string) error {
	if networkID == "" {
		networkID = p.networkID
	}
	spec, err := p.primarySpec(networkID)
	if err != nil {
		return err
	}
	p.primaryID, err = p.cfg.Engine.CreateContainer(ctx, spec)
	if errdefs.IsAlreadyExists(err) {
		return taken("container", spec.Name)
	}
	return err
}

func (p *pass) start(ctx context.Context, id string) error {
	if id == "" {
		id = p.primaryID
	}
	return p.cfg.Engine.StartContainer(ctx, id)
}

func (p *pass) stop(ctx context.Context, id string) error {
	if err := p.ops.failure(p.rec.ID, plan.StopContainer); err != nil {
		return err
	}
	p.ops.start(ctx, p.rec.ID, plan.StopContainer, func(ctx context.Context) error {
		return p.cfg.Engine.StopContainer(ctx, id, p.cfg.StopGrace)
	})
	return &waitingError{"stopping"}
}

// classify tells an error that ends the attempt to make a sandbox run from one to retry. Unknown means retry, for a
// while.
func (p *pass) classify(s plan.Step, err error) error {
	if waits(err) || !p.making(s.Kind) {
		return err
	}
	if p.hopeless(s, err) {
		return &TerminalError{Code: plan.FailureCode(p.rec), Err: err}
	}
	return err
}

// hopeless reports whether trying again can't mend err, or has been tried often enough.
func (p *pass) hopeless(s plan.Step, err error) bool {
	refused := errdefs.IsInvalidArgument(err) || errdefs.IsPermissionDenied(err) || errdefs.IsUnauthorized(err)
	switch {
	case s.Kind == plan.EnsureImage:
		return refused || errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err)
	case runs(p.rec): // it ran before the engine or the host died; what it lacks now may come yet, such as a mount
		return (refused || unclassified(err)) && p.odd.again(p.rec.ID) > patienceAfterDeath
	}
	return refused || unclassified(err) && p.odd.again(p.rec.ID) > patience
}

// making reports whether a step is part of making a sandbox run. Nothing else can fail it: what stops or removes is
// retried for ever.
func (p *pass) making(k plan.Kind) bool {
	switch k {
	case plan.EnsureImage, plan.CreatePrimary, plan.StartContainer:
		return p.rec.Standing == plan.Live
	}
	return false
}

func unclassified(err error) bool {
	return !errdefs.IsUnavailable(err) && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) &&
		!errdefs.IsCanceled(err) && !errdefs.IsDeadlineExceeded(err) && !errdefs.IsFailedPrecondition(err)
}
