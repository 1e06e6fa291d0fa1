package sandbox

import (
	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/controller/queue"

	"github.com/agbox/agbox/controller/plan"
)

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
// sandbox ("").
func (p *pass) hopeless(s plan.Step, err error, service string, patience int) bool {
	refused := errdefs.IsInvalidArgument(err) || errdefs.IsPermissionDenied(err) || errdefs.IsUnauthorized(err)
	switch {
	case s.Kind == plan.EnsureImage:
		return refused || errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err)
	case p.rec.Runs():
		return (refused || unclassified(err)) && p.scratch.odd(p.rec.ID, service) > patience
	}
	return refused || unclassified(err) && p.scratch.odd(p.rec.ID, service) > patience
}

// making reports whether a step is part of starting a container of a live sandbox.
func (p *pass) making(k plan.Kind) bool { return p.rec.Standing == plan.Live && k.Makes() }

func unclassified(err error) bool {
	return !errdefs.IsUnavailable(err) && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) &&
		!errdefs.IsCanceled(err) && !errdefs.IsDeadlineExceeded(err) && !errdefs.IsFailedPrecondition(err)
}
