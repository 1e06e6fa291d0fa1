package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/internal/host/clockjump"
)

// lossy is a store without agents that commits the phase of a drain, and whose reply is lost.
type lossy struct {
	Store
	DrainStore
	rec *storev1.DrainRecord
}

func (l *lossy) LiveAgentIDs() []string { return nil }

func (l *lossy) Drain() *storev1.DrainRecord { return l.rec }

func (l *lossy) SetDrainPhase(_ context.Context, _ *storev1.DrainRecord, phase agboxv1.DrainPhase) (bool, error) {
	l.rec.Phase = phase
	return false, errors.New("the reply is lost")
}

func TestADrainWhoseLastReplyIsLostIsDoneInTheNextPass(t *testing.T) {
	s := &lossy{rec: &storev1.DrainRecord{
		Mode: agboxv1.DrainMode_DRAIN_MODE_PARK, Phase: agboxv1.DrainPhase_DRAIN_PHASE_SAVING, Exit: true,
	}}
	var exits []bool
	d := NewDrainer(&Reconciler{cfg: Options{Store: s, Clock: clock.New(nil, func() time.Duration { return 0 }, clockjump.State{})}}, s, nil, func(exit bool) { exits = append(exits, exit) })
	if _, err := d.ReconcileDrain(t.Context(), DrainKey); err == nil || len(exits) != 0 {
		t.Fatalf("the pass whose reply was lost: %v, drained %v", err, exits)
	}
	if _, err := d.ReconcileDrain(t.Context(), DrainKey); err != nil || len(exits) != 1 || !exits[0] {
		t.Errorf("the next pass: %v, drained %v; want one with exit", err, exits)
	}
}
