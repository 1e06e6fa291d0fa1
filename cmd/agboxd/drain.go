package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/store"
)

// drainMargin is the time that a drain may take in addition to its wait, for interrupts, saving and the last writes. With the default wait
// agboxd exits at most 11 minutes after the first signal.
const drainMargin = time.Minute

// drainer passes drain calls and signals to the controller.
type drainer struct {
	ctl *controller.Controller
	// cfg returns the configuration after the last reload.
	cfg func() config.Drain
	// over receives a value when a drain may have ended, done when a drain with exit has finished.
	over, done chan struct{}
}

func newDrainer(cfg func() config.Drain) *drainer {
	return &drainer{cfg: cfg, over: make(chan struct{}, 1), done: make(chan struct{}, 1)}
}

// drained is the controller's callback at the end of a drain.
func (d *drainer) drained(exit bool) {
	notify(d.over)
	if exit {
		notify(d.done)
	}
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Drain implements server.Drainer.
func (d *drainer) Drain(ctx context.Context, req *agboxv1.DrainRequest) (*agboxv1.DrainStatus, error) {
	wait := d.cfg().Wait
	if req.GetWait() != nil {
		wait = req.GetWait().AsDuration()
	}
	return d.ctl.Drain(ctx, store.DrainOptions{
		Mode: cmp.Or(req.GetMode(), agboxv1.DrainMode_DRAIN_MODE_PARK), Wait: wait, Reason: cmp.Or(req.GetReason(), "drain_requested"),
		SaveEach: req.GetSaveEach().AsDuration(), SaveAll: req.GetSaveAll().AsDuration(), Exit: req.GetExit(),
	})
}

// Undrain implements server.Drainer.
func (d *drainer) Undrain(ctx context.Context) error {
	changed, err := d.ctl.Undrain(ctx)
	notify(d.over)
	if err == nil && !changed {
		err = &store.Refusal{
			Reason: "DRAIN_INVALID_STATE", Message: "the daemon is not draining", Class: errdefs.ErrFailedPrecondition,
		}
	}
	return err
}

// Status implements server.Drainer.
func (d *drainer) Status() *agboxv1.DrainStatus { return d.ctl.DrainStatus() }

// mustPark reports whether agents save their work before agboxd exits on SIGTERM or SIGINT.
func (d *drainer) mustPark() bool {
	switch d.cfg().OnSigterm {
	case config.OnSigtermDetach:
		return false
	case config.OnSigtermPark:
		return true
	}
	return len(d.ctl.BusyAgents()) > 0
}

// beforeExit parks the agents after the first SIGTERM or SIGINT. On the second signal, the first from signals, it makes the controller save
// the remaining agents' work at once; on the third one it returns.
func (d *daemon) beforeExit(ctx context.Context, signals <-chan os.Signal) {
	if !d.drainer.mustPark() {
		return
	}
	_, err := d.drainer.Drain(ctx, &agboxv1.DrainRequest{Reason: "sigterm", Exit: true})
	var refusal *store.Refusal
	if err != nil && !errors.As(err, &refusal) { // a refusal means that a drain is already running
		d.log.Error("agents are not parked", "err", err)
		return
	}
	d.log.Info("agboxd ends once its agents are parked; another signal saves their work now")
	limit := time.NewTimer(d.drainer.cfg().Wait + drainMargin)
	defer limit.Stop()
	hurried := false
	for s := d.drainer.Status(); s.GetDraining() && s.GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_DONE; s = d.drainer.Status() {
		select {
		case <-d.drainer.over:
		case <-limit.C:
			d.log.Error("the drain takes too long; what is left works on and is adopted by the next start")
			return
		case <-signals:
			if hurried {
				d.log.Warn("agboxd ends at once")
				return
			}
			d.log.Warn("what still works is saved now; another signal ends agboxd at once")
			if err := d.ctl.SaveNow(ctx); err != nil {
				d.log.Error("it can't be recorded that agents save their work now", "err", err)
			}
			hurried = true
		}
	}
}
