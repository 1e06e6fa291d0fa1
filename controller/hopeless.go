package controller

import (
	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/controller/queue"

	"github.com/agbox/agbox/controller/plan"
)

// classify tells an error that ends the attempt to make a sandbox run from one to retry. Unknown means retry, for a
// while.
func (p *pass) classify(s plan.Step, err error) error {
	if !p.making(s.Kind) {
		return err
	}
	patience := patience
	if runs(p.rec) { // it ran before the engine or the host died; what it lacks now may come yet, such as a mount
		patience = patienceAfterDeath
	}
	err = about(s.Service, err)
	if p.hopeless(s, err, p.rec.ID, patience) {
		return &queue.TerminalError{Code: plan.FailureCode(p.rec), Err: err}
	}
	return err
}

// hopeless reports whether trying again can't mend err, or has been tried often enough; key counts the tries.
func (p *pass) hopeless(s plan.Step, err error, key string, patience int) bool {
	refused := errdefs.IsInvalidArgument(err) || errdefs.IsPermissionDenied(err) || errdefs.IsUnauthorized(err)
	switch {
	case s.Kind == plan.EnsureImage:
		return refused || errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err)
	case runs(p.rec):
		return (refused || unclassified(err)) && p.odd.again(key) > patience
	}
	return refused || unclassified(err) && p.odd.again(key) > patience
}

// making reports whether a step is part of making a container run. Nothing else can fail: what stops or removes is retried
// forever.
func (p *pass) making(k plan.Kind) bool {
	switch k {
	case plan.EnsureImage, plan.CreatePrimary, plan.CreateService, plan.CopyFiles, plan.StartContainer, plan.Release:
		return p.rec.Standing == plan.Live
	}
	return false
}

func unclassified(err error) bool {
	return !errdefs.IsUnavailable(err) && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) &&
		!errdefs.IsCanceled(err) && !errdefs.IsDeadlineExceeded(err) && !errdefs.IsFailedPrecondition(err)
}
