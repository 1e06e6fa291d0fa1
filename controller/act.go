package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
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

// pass carries what earlier steps of the same pass have made and recorded.
type pass struct {
	*Controller
	rec plan.Record
	sb  store.Sandbox
	w   plan.World
	set Settings

	// progress is what is recorded by now.
	progress *storev1.Progress
	// images and made are found or made in this pass, by service; "" is the primary.
	images    map[string]dockerx.Image
	made      map[string]string
	networkID string
}

func newPass(c *Controller, rec plan.Record, sb store.Sandbox, w plan.World) *pass {
	return &pass{
		Controller: c, rec: rec, sb: sb, w: w, set: c.now(), progress: rec.Progress,
		images: map[string]dockerx.Image{}, made: map[string]string{},
	}
}

// report records r and keeps what is recorded by now.
func (p *pass) report(ctx context.Context, r plan.Report) error {
	err := p.Controller.report(ctx, p.rec.ID, p.sb.Desired.GetGeneration(), r)
	if err == nil && r.Progress != nil {
		p.progress = r.Progress
	}
	return err
}

// act takes the steps in order, up to the first error. Steps in a row that go on in the background do so side by side.
func (p *pass) act(ctx context.Context, steps []plan.Step) error {
	var waiting error
	for i, s := range steps {
		if waiting != nil && (!s.Kind.Waits() || s.Kind != steps[i-1].Kind) {
			return waiting
		}
		err := p.once(ctx, s)
		switch {
		case waits(err):
			waiting = err
		case err != nil:
			return p.classify(s, err)
		}
	}
	return waiting
}

// once takes one step and leaves its traces: a metric, and for what is done to the engine a line in the log.
func (p *pass) once(ctx context.Context, s plan.Step) error {
	begun := time.Now()
	err := p.take(ctx, s)
	if waits(err) {
		return err // its end leaves the line
	}
	p.cfg.Metrics.Step(string(s.Kind), err)
	if s.Kind.OnEngine() && !inBackground(s.Kind) {
		p.audit(s, p.objectOf(s), time.Since(begun), err)
	}
	if err == nil && s.Reason == plan.BecauseOrphan {
		p.cfg.Metrics.OrphanRemoved()
	}
	return err
}

// inBackground reports whether the step is taken by a background operation, which leaves the line at its end; here only its
// outcome is seen, maybe more than once.
func inBackground(k plan.Kind) bool {
	return k == plan.EnsureImage || k == plan.CopyFiles || k == plan.StopContainer
}

func (p *pass) objectOf(s plan.Step) string {
	switch {
	case s.Kind == plan.CreateNetwork:
		return p.networkID
	case s.Kind == plan.CreatePrimary, s.Kind == plan.CreateService, s.ID == "":
		return p.made[s.Service]
	}
	return s.ID
}

// actAside takes each aside, whatever becomes of the others, and reports its outcome. waiting tells that a background
// operation will add the key.
func (p *pass) actAside(ctx context.Context, asides []plan.Aside) (waiting bool, err error) {
	var errs []error
	for _, a := range asides {
		err := p.aside(ctx, a)
		if waits(err) {
			waiting = true
			continue
		}
		errs = append(errs, err)
	}
	return waiting, errors.Join(errs...)
}

// aside does what one service needs. An error that trying again can't mend is the service's fall.
func (p *pass) aside(ctx context.Context, a plan.Aside) error {
	for _, s := range a.Steps {
		err := p.once(ctx, s)
		if err == nil {
			continue
		}
		if waits(err) {
			return err
		}
		if !p.making(s.Kind) || !p.hopeless(s, err, p.rec.ID+"/"+a.Service, patience) {
			return about(s.Service, err)
		}
		a = a.GivenUp(p.progress, err.Error())
		break
	}
	if a.LimitsApplied {
		return settled(p.report(ctx, plan.Report{LimitsApplied: true}))
	}
	p.odd.forget(p.rec.ID + "/" + a.Service)
	progress := &storev1.Progress{}
	proto.Merge(progress, p.progress)
	if progress.Services == nil {
		progress.Services = map[string]*storev1.ServiceProgress{}
	}
	progress.Services[a.Service] = a.Then
	return settled(p.report(ctx, plan.Report{Events: a.Events, Progress: progress}))
}

// about says whose error it is.
func about(service string, err error) error {
	if service == "" {
		return err
	}
	return fmt.Errorf("service %s: %w", service, err)
}

func (p *pass) take(ctx context.Context, s plan.Step) error {
	id := p.rec.ID
	switch s.Kind {
	case plan.MakeInputs:
		_, err := p.cfg.Execs.Prepare(id)
		return err
	case plan.EnsureImage:
		return p.ensureImage(ctx, s)
	case plan.CreateNetwork:
		return p.createNetwork(ctx)
	case plan.CreatePrimary, plan.CreateService:
		return p.createContainer(ctx, s)
	case plan.CopyFiles:
		return p.copyFiles(ctx, s)
	case plan.StartContainer:
		return p.start(ctx, s)
	case plan.Release:
		return p.release(ctx, s)
	case plan.RunHook:
		return p.runHook(s.Index)
	case plan.CancelHook:
		return p.cancelHook(ctx, s.Index)
	case plan.EndHook:
		return p.cfg.Execs.Forget(id, plan.HookID(s.Index))
	case plan.CancelExecs:
		p.wakeExecsOf(id)
		return nil
	case plan.UpdateLimits:
		return p.updateLimits(ctx, s)
	case plan.StopContainer:
		return p.stop(ctx, s)
	case plan.RemoveContainer:
		return p.cfg.Engine.RemoveContainer(ctx, s.ID)
	case plan.RemoveNetwork:
		return p.cfg.Engine.RemoveNetwork(ctx, s.ID)
	case plan.RemoveInputs:
		return p.cfg.Execs.RemoveInputs(id)
	case plan.RemoveFiles:
		return p.cfg.Execs.Remove(id)
	case plan.StopIdle:
		_, err := p.cfg.Store.RequestIdleStop(ctx, id, idleTTL(p.sb, p.set))
		return err
	case plan.Cleanup:
		_, err := p.cfg.Store.RequestCleanup(ctx, id, p.set.CleanupTTL)
		return err
	}
	return fmt.Errorf("unknown step %s", s.Kind)
}

func (p *pass) createNetwork(ctx context.Context) error {
	spec := dockerx.NetworkSpec{
		Name: naming.Network(p.rec.ID), Labels: p.labels(naming.ComponentNetwork), PrefixBits: prefixBits(len(p.rec.Wanted.Services)),
	}
	n, err := p.cfg.Engine.CreateNetwork(ctx, spec)
	if errdefs.IsAlreadyExists(err) {
		return taken("network", spec.Name)
	}
	p.networkID = n.ID
	return err
}

// prefixBits is the smallest subnet that holds the containers beside its own three addresses: network, gateway, broadcast.
func prefixBits(services int) int {
	bits := 28
	for 1<<(32-bits)-3 < 1+services {
		bits--
	}
	return bits
}

// taken is the error for a name that an object has which is not known to be ours. Either it is from our own create, whose
// reply was lost, and the next pass finds it by its labels; or it is somebody else's, which is not touched.
func taken(what, name string) error {
	return fmt.Errorf("the name %s is taken by a %s that is not of this sandbox: %w", name, what, errdefs.ErrUnavailable)
}

func (p *pass) createContainer(ctx context.Context, s plan.Step) error {
	if err := p.engineRefuses(p.sb.Spec).Err(); err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	networkID := s.ID
	if networkID == "" {
		networkID = p.networkID
	}
	spec, err := p.containerSpec(s.Service, networkID)
	if err != nil {
		return err
	}
	p.made[s.Service], err = p.cfg.Engine.CreateContainer(ctx, spec)
	if errdefs.IsAlreadyExists(err) {
		return taken("container", spec.Name)
	}
	return err
}

func (p *pass) start(ctx context.Context, s plan.Step) error {
	id := s.ID
	if id == "" {
		id = p.made[s.Service]
	}
	if s.Service == "" {
		if err := p.verifySources(); err != nil {
			return err
		}
		if err := p.cfg.Execs.Withhold(p.rec.ID); err != nil {
			return err
		}
	}
	if err := p.cfg.Engine.StartContainer(ctx, id); err != nil || !publishesFrom(p.sb.Spec, s.Service) {
		return err
	}
	d, err := p.cfg.Engine.InspectContainer(ctx, id)
	if err != nil {
		return nil // it has started; the next pass learns its ports
	}
	p.published.learn(p.rec.ID, s.Service, portsOf(plan.Container{Service: s.Service}, d))
	return nil
}

func (p *pass) updateLimits(ctx context.Context, s plan.Step) error {
	want := p.rec.Wanted.Limits
	for _, svc := range p.rec.Wanted.Services {
		if svc.Name == s.Service && s.Service != "" {
			want = svc.Limits
		}
	}
	return p.cfg.Engine.UpdateContainer(ctx, s.ID, dockerx.Limits(want))
}

func (p *pass) stop(ctx context.Context, s plan.Step) error {
	key := opKey{p.rec.ID, plan.StopContainer, s.ID}
	if _, err := p.ops.outcome(key); err != nil {
		return err
	}
	p.ops.start(ctx, key, func(ctx context.Context) error {
		begun := time.Now()
		err := p.cfg.Engine.StopContainer(ctx, s.ID, p.set.StopGrace)
		p.audit(s, s.ID, time.Since(begun), err)
		return err
	})
	return &waitingError{"stopping"}
}
