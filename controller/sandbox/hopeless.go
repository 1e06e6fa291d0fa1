package sandbox

import (
	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/controller/queue"

	"github.com/agbox/agbox/controller/plan"
)

const (
	// patience is how often an error of no known class is retried before it ends the attempt to make a sandbox run: with the backoff
	// of the queue some 13 s, and longer while the engine does not answer.
	patience = 8
	// patienceAfterDeath is the same for a sandbox that the engine's or the host's death ended: some 6 minutes. Its user did nothing
	// wrong, and a host that has just booted is not complete.
	patienceAfterDeath = 20
)

// classify tells an error that ends the attempt to make a sandbox run from one to retry. Unknown means retry, for a
// while.
func (p *pass) classify(s plan.Step, err error) error {
	if !p.making(s.Kind) {
		return err
	}
	patience := patience
	if p.rec.Runs() { // it ran before the engine or the host died; what it lacks now may come yet, such as a mount
		patience = patienceAfterDeath
	}
	err = about(s.Service, err)
	if p.hopeless(s, err, "", patience) {
		return &queue.TerminalError{Code: plan.FailureCode(p.rec), Err: err}
	}
	return err
}

// hopeless reports whether trying again can't mend err, or has been tried often enough for a service, or for the sandbox ("").
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

// making reports whether a step is part of making a container of a live sandbox run.
func (p *pass) making(k plan.Kind) bool { return p.rec.Standing == plan.Live && k.Makes() }

func unclassified(err error) bool {
	return !errdefs.IsUnavailable(err) && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) &&
		!errdefs.IsCanceled(err) && !errdefs.IsDeadlineExceeded(err) && !errdefs.IsFailedPrecondition(err)
}
