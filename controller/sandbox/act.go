package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/auditlog"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/store"
)

// waitingError ends a pass that waits for a background operation. It is not a failure.
type waitingError struct{ what string }

func (e *waitingError) Error() string { return e.what }

func waits(err error) bool {
	_, ok := errors.AsType[*waitingError](err)
	return ok
}

// pass carries what the steps of one pass have created and recorded so far.
type pass struct {
	*Reconciler
	rec plan.Record
	sb  store.Sandbox
	w   plan.World
	set Settings
	// at is when the plan was decided, with the clock that it was read from.
	at clockjump.Moment

	// progress is what is recorded so far.
	progress *storev1.Progress
	// images and made hold the images found and the container IDs created in this pass, by service; "" is the primary.
	images    map[string]dockerx.Image
	made      map[string]string
	networkID string
}

// report records r and keeps its progress.
func (p *pass) report(ctx context.Context, r plan.Report) error {
	err := p.Reconciler.report(ctx, p.rec.ID, p.sb.Desired.GetGeneration(), r, Timeout(p.sb, p.set))
	if err == nil && r.Progress != nil {
		p.progress = r.Progress
	}
	return err
}

// act runs the steps in order, up to the first error. Consecutive background steps of the same kind run concurrently.
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

// once runs one step, counts it in a metric and, if it acts on the engine, writes an audit line.
func (p *pass) once(ctx context.Context, s plan.Step) error {
	begun := time.Now()
	err := p.run(ctx, s)
	if waits(err) {
		return err // the background operation writes the audit line when it ends
	}
	p.o.Metrics.Step(string(s.Kind), err)
	if s.Kind.OnEngine() && !s.Kind.InBackground() {
		p.audit(s, p.objectOf(s), begun, err)
	}
	return err
}

// audit writes the audit line of a step that acts on the engine, and counts a removed orphan.
func (p *pass) audit(s plan.Step, object string, begun time.Time, err error) {
	auditlog.Write(p.log, p.rec.ID, s, object, time.Since(begun), err)
	if err == nil && s.Reason == plan.BecauseOrphan {
		p.o.Metrics.OrphanRemoved()
	}
}

func (p *pass) objectOf(s plan.Step) string {
	switch {
	case s.Kind == plan.CreateNetwork, s.Kind == plan.ConfineNetwork && s.ID == "":
		return p.networkID
	case s.Kind == plan.CreatePrimary, s.Kind == plan.CreateService, s.ID == "":
		return p.made[s.Service]
	}
	return s.ID
}

// actAside runs every aside, even if others fail, and reports the outcome of each. waiting reports that a background operation will add the
// key.
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

// aside runs the steps of one service. An error that a retry cannot fix is recorded as the failure of the service.
func (p *pass) aside(ctx context.Context, a plan.Aside) error {
	for _, s := range a.Steps {
		err := p.once(ctx, s)
		if err == nil {
			continue
		}
		if waits(err) {
			return err
		}
		if !p.making(s.Kind) || !p.hopeless(s, err, a.Service, patience) {
			return about(s.Service, err)
		}
		a = a.GivenUp(p.progress, message.Of(err))
		break
	}
	if a.LimitsApplied {
		return ignoreAborted(p.report(ctx, plan.Report{LimitsApplied: true}))
	}
	p.scratch.fine(p.rec.ID, a.Service)
	progress := &storev1.Progress{}
	proto.Merge(progress, p.progress)
	if progress.Services == nil {
		progress.Services = map[string]*storev1.ServiceProgress{}
	}
	progress.Services[a.Service] = a.Then
	return ignoreAborted(p.report(ctx, plan.Report{Events: a.Events, Progress: progress}))
}

// about names the service in the error; "" is the primary and adds nothing.
func about(service string, err error) error {
	if service == "" {
		return err
	}
	return fmt.Errorf("service %s: %w", service, err)
}

// audited returns fn with the audit line of a step that acts on the engine.
func (p *pass) audited(s plan.Step, object string, fn func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		begun := time.Now()
		err := fn(ctx)
		p.audit(s, object, begun, err)
		return err
	}
}

// background runs a step of an object as a background operation and waits up to d for its end. It returns the error of an earlier run that
// no pass has seen. While the operation runs, it returns a waitingError that says what is waited for.
func (p *pass) background(ctx context.Context, s plan.Step, object string, d time.Duration, what string, fn func(context.Context) error) error {
	key := queue.Operation[plan.Kind]{ID: p.rec.ID, Kind: s.Kind, Subject: object}
	ended, err := p.ops.Outcome(key)
	if !ended {
		ended, err = p.ops.Start(ctx, key, d, fn)
	}
	if !ended {
		return &waitingError{what}
	}
	return err
}

const (
	// patience is how many times an error of no known class is retried before the attempt to start a sandbox fails: about 13 s with the
	// backoff of the queue, and longer while the engine does not answer.
	patience = 8
	// patienceAfterDeath is the same for a sandbox that ended because the engine or the host died: about 6 minutes. The user did nothing
	// wrong, and a host that has just booted may lack something for a while.
	patienceAfterDeath = 20
)

// classify turns an error that a retry cannot fix into a TerminalError, which ends the attempt to start the sandbox. Errors of no known
// class are retried up to the patience.
func (p *pass) classify(s plan.Step, err error) error {
	if !p.making(s.Kind) {
		return err
	}
	patience := patience
	if p.rec.Runs() { // it ran before the engine or the host died; what is missing now, such as a mount, may still appear
		patience = patienceAfterDeath
	}
	err = about(s.Service, err)
	if p.hopeless(s, err, "", patience) {
		return &queue.TerminalError{Code: plan.FailureCode(p.rec), Err: err}
	}
	return err
}

// hopeless reports whether a retry cannot fix err, or whether unclassified errors were retried often enough for a service, or for the
// sandbox (""). On a full disk no number of retries is enough.
func (p *pass) hopeless(s plan.Step, err error, service string, patience int) bool {
	refused := errdefs.IsInvalidArgument(err) || errdefs.IsPermissionDenied(err) || errdefs.IsUnauthorized(err)
	switch {
	case s.Kind == plan.EnsureImage:
		return refused || errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err)
	case refused && !p.rec.Runs():
		return true
	}
	if !refused && !unclassified(err) || p.o.RoomNow() != "" { // the engine's error on a full disk has no class
		return false
	}
	return p.scratch.odd(p.rec.ID, service) > patience
}

// making reports whether a step is part of starting a container of a live sandbox.
func (p *pass) making(k plan.Kind) bool { return p.rec.Standing == plan.Live && k.Makes() }

func unclassified(err error) bool {
	return !errdefs.IsUnavailable(err) && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) &&
		!errdefs.IsCanceled(err) && !errdefs.IsDeadlineExceeded(err) && !errdefs.IsFailedPrecondition(err)
}
