package agent

import (
	"context"
	"errors"
	"os"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// drainMargin is the time that a drain may take in addition to its wait, for interrupts, saving and the last writes. With the default wait
// agboxd exits at most 11 minutes after the first signal.
const drainMargin = time.Minute

// ParkForExit parks the agents of a daemon that was asked to exit, and waits until they are parked or the time is over. drained has a value
// after each end of a drain. On the first of signals the work of the remaining agents is saved at once; on the second one it returns.
func (d *Drainer) ParkForExit(ctx context.Context, wait time.Duration, drained <-chan struct{}, signals <-chan os.Signal) {
	log := d.agents.cfg.Logger
	_, err := d.Drain(ctx, store.DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_PARK, Wait: wait, Reason: "sigterm", Exit: true})
	var refusal *store.Refusal
	if err != nil && !errors.As(err, &refusal) { // a refusal means that a drain is already running
		log.Error("agents are not parked", "err", err)
		return
	}
	log.Info("agboxd ends once its agents are parked; another signal saves their work now")
	limit := time.NewTimer(wait + drainMargin)
	defer limit.Stop()
	hurried := false
	for s := d.DrainStatus(); s.GetDraining() && s.GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_DONE; s = d.DrainStatus() {
		select {
		case <-drained:
		case <-limit.C:
			log.Error("the drain timed out; the remaining agents keep running and the next agboxd adopts them")
			return
		case <-signals:
			if hurried {
				log.Warn("agboxd ends at once")
				return
			}
			log.Warn("saving the work of busy agents now; another signal ends agboxd at once")
			if err := d.SaveNow(ctx); err != nil {
				log.Error("it can't be recorded that agents save their work now", "err", err)
			}
			hurried = true
		}
	}
}
