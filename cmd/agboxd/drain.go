package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/store"
)

// drainMargin is what a drain may take beyond its wait: interrupts, saving, and the last writes. With the default wait the
// daemon has ended 11 minutes after its first signal.
const drainMargin = time.Minute

// drainer carries calls and signals to the controller.
type drainer struct {
	ctl *controller.Controller
	// wait is drain.wait as it is now, in nanoseconds.
	wait atomic.Int64
	// onSigterm is drain.on_sigterm as it is now.
	onSigterm atomic.Value
	// done holds a word once a drain that the daemon is to end with has nothing left to do.
	done chan struct{}
}

func newDrainer(cfg config.Drain) *drainer {
	d := &drainer{done: make(chan struct{}, 1)}
	d.configure(cfg)
	return d
}

// configure takes over what a reload may change.
func (d *drainer) configure(cfg config.Drain) {
	d.wait.Store(int64(cfg.Wait))
	d.onSigterm.Store(cfg.OnSigterm)
}

// drained is called by the controller.
func (d *drainer) drained(exit bool) {
	if !exit {
		return
	}
	select {
	case d.done <- struct{}{}:
	default:
	}
}

// Drain implements server.Drainer.
func (d *drainer) Drain(ctx context.Context, req *agboxv1.DrainRequest) (*agboxv1.DrainStatus, error) {
	wait := time.Duration(d.wait.Load())
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
	if err == nil && !changed {
		err = &store.Refusal{
			Reason: "DRAIN_INVALID_STATE", Message: "the daemon is not draining", Class: errdefs.ErrFailedPrecondition,
		}
	}
	return err
}

// Status implements server.Drainer.
func (d *drainer) Status() *agboxv1.DrainStatus { return d.ctl.DrainStatus() }

// mustPark reports whether a signal to end means that agents save their work first.
func (d *drainer) mustPark() bool {
	switch d.onSigterm.Load() {
	case config.OnSigtermDetach:
		return false
	case config.OnSigtermPark:
		return true
	}
	return d.ctl.BusyAgents() > 0
}

// drainPoll is how often a daemon that is to end looks whether it may.
const drainPoll = 100 * time.Millisecond

// beforeExit parks the agents, after the first signal to end. A second one, the first in signals, has stragglers saved at once; a
// third one returns.
func (d *daemon) beforeExit(ctx context.Context, signals <-chan os.Signal) {
	if !d.drainer.mustPark() {
		return
	}
	_, err := d.drainer.Drain(ctx, &agboxv1.DrainRequest{Reason: "sigterm", Exit: true})
	var refusal *store.Refusal
	if err != nil && !errors.As(err, &refusal) { // one under way will do
		d.log.Error("agents are not parked", "err", err)
		return
	}
	d.log.Info("agboxd ends once its agents are parked; another signal saves their work now")
	limit := time.NewTimer(time.Duration(d.drainer.wait.Load()) + drainMargin)
	defer limit.Stop()
	look := time.NewTicker(drainPoll)
	defer look.Stop()
	hurried := false
	for s := d.drainer.Status(); s.GetDraining() && s.GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_DONE; s = d.drainer.Status() {
		select {
		case <-look.C:
		case <-limit.C:
			d.log.Error("the drain takes too long; what is left works on and is adopted by the next start")
			return
		case <-signals:
			if hurried {
				d.log.Warn("agboxd ends at once")
				return
			}
			d.log.Warn("what still works is saved now; another signal ends agboxd at once")
			d.ctl.HurryDrain()
			hurried = true
		}
	}
}
