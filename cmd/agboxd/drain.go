package main

import (
	"context"
	"errors"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/store"
)

// drainMargin is the time that a drain may take in addition to its wait, for interrupts, saving and the last writes. With the default wait
// agboxd exits at most 11 minutes after the first signal.
const drainMargin = time.Minute

// mustPark reports whether agents save their work before agboxd exits on SIGTERM or SIGINT.
func (d *daemon) mustPark() bool {
	switch d.current.Load().Drain.OnSigterm {
	case config.OnSigtermDetach:
		return false
	case config.OnSigtermPark:
		return true
	}
	return len(d.ctl.BusyAgents()) > 0
}

// beforeExit parks the agents after the first SIGTERM or SIGINT. On the second signal it makes the controller save the remaining agents'
// work at once; on the third one it returns.
func (d *daemon) beforeExit(ctx context.Context) {
	if !d.mustPark() {
		return
	}
	wait := d.current.Load().Drain.Wait
	_, err := d.ctl.Drain(ctx, store.DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_PARK, Wait: wait, Reason: "sigterm", Exit: true})
	var refusal *store.Refusal
	if err != nil && !errors.As(err, &refusal) { // a refusal means that a drain is already running
		d.log.Error("agents are not parked", "err", err)
		return
	}
	d.log.Info("agboxd ends once its agents are parked; another signal saves their work now")
	limit := time.NewTimer(wait + drainMargin)
	defer limit.Stop()
	hurried := false
	for s := d.ctl.DrainStatus(); s.GetDraining() && s.GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_DONE; s = d.ctl.DrainStatus() {
		select {
		case <-d.drained:
		case <-limit.C:
			d.log.Error("the drain timed out; the remaining agents keep running and the next agboxd adopts them")
			return
		case <-signals:
			if hurried {
				d.log.Warn("agboxd ends at once")
				return
			}
			d.log.Warn("saving the work of busy agents now; another signal ends agboxd at once")
			if err := d.ctl.SaveNow(ctx); err != nil {
				d.log.Error("it can't be recorded that agents save their work now", "err", err)
			}
			hurried = true
		}
	}
}
