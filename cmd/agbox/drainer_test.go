package main

import (
	"cmp"
	"context"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/store"
)

// drainer implements server.Drainer for a daemon that does not exit after a drain.
type drainer struct{ ctl *controller.Controller }

func (d drainer) Drain(ctx context.Context, req *agboxv1.DrainRequest) (*agboxv1.DrainStatus, error) {
	wait := time.Minute
	if req.GetWait() != nil {
		wait = req.GetWait().AsDuration()
	}
	return d.ctl.Drain(ctx, store.DrainOptions{
		Mode: cmp.Or(req.GetMode(), agboxv1.DrainMode_DRAIN_MODE_PARK), Wait: wait, Reason: req.GetReason(),
		SaveEach: time.Second, SaveAll: time.Second, Exit: req.GetExit(),
	})
}

func (d drainer) Undrain(ctx context.Context) error {
	changed, err := d.ctl.Undrain(ctx)
	if err == nil && !changed {
		err = &store.Refusal{Reason: "DRAIN_INVALID_STATE", Message: "the daemon is not draining", Class: errdefs.ErrFailedPrecondition}
	}
	return err
}

func (d drainer) Status() *agboxv1.DrainStatus { return d.ctl.DrainStatus() }
