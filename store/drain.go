package store

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// maxDrain is the age at which a drain ends without WithdrawDrain.
const maxDrain = time.Hour

// Results of saving an agent's work during a drain: Transition.Saved.
const (
	Saved    = "saved"
	NotSaved = "not saved"
)

// DrainOptions are the parameters that StartDrain records.
type DrainOptions struct {
	Mode   agboxv1.DrainMode
	Reason string
	// Wait is how long busy agents may run on from now.
	Wait time.Duration
	// SaveEach and SaveAll limit how long saving may take, for each agent and in total.
	SaveEach, SaveAll time.Duration
	// Exit: the daemon exits when the drain is complete.
	Exit bool
}

// drainChange is a staged record of the drain; nil: the drain ends.
type drainChange struct{ record *storev1.DrainRecord }

// NewEpoch records the start of a daemon and ends the drain of the previous one. Call it once, at the start, before the first write.
// Errors: ErrDataLoss; ErrUnavailable.
func (s *Store) NewEpoch(ctx context.Context) (epoch uint64, err error) {
	return updated(ctx, s, func(t *txn) (uint64, error) {
		have, err := epochIn(t.tx)
		if err != nil {
			return 0, err
		}
		t.putInt(bucketMeta, keyEpoch, have+1)
		rec := t.draining()
		if t.setDrain(nil); rec != nil {
			t.recordDrain(rec, agboxv1.DrainPhase_DRAIN_PHASE_UNSPECIFIED, leaveMarks)
		}
		return have + 1, nil
	})
}

// epochIn returns the recorded epoch; 0: none yet. Errors: ErrDataLoss.
func epochIn(tx *bolt.Tx) (uint64, error) {
	v := get(tx, bucketMeta, []byte(keyEpoch))
	if v == nil {
		return 0, nil
	}
	return decodeInt(v)
}

// Drain returns the record of the current drain; nil: no drain. From memory.
func (s *Store) Drain() *storev1.DrainRecord {
	rec := s.draining.Load()
	if rec == nil || isOver(rec, s.o.Now()) {
		return nil
	}
	return proto.CloneOf(rec)
}

func isSameDrain(a, b *storev1.DrainRecord) bool {
	return a != nil && b != nil && a.GetEpoch() == b.GetEpoch() && a.GetStartedAt() == b.GetStartedAt()
}

func isOver(rec *storev1.DrainRecord, now time.Time) bool {
	return now.UnixNano()-rec.GetStartedAt() >= int64(maxDrain)
}

// draining returns the record of the current drain; nil: no drain.
func (t *txn) draining() *storev1.DrainRecord {
	rec := t.loader.drain()
	if rec == nil || isOver(rec, t.now) {
		return nil
	}
	return rec
}

// drain reads the drain record of the current epoch; nil: none. A record that does not decode is noted and ignored.
func (l loader) drain() *storev1.DrainRecord {
	if get(l.tx, bucketMeta, []byte(keyDrain)) == nil {
		return nil
	}
	rec, err := required[*storev1.DrainRecord](l, bucketMeta, keyDrain, "")
	if err != nil {
		return nil
	}
	if epoch, err := epochIn(l.tx); err != nil || rec.GetEpoch() != epoch {
		return nil
	}
	return rec
}

func (s *Store) loadDrain(tx *bolt.Tx) { s.draining.Store(loader{tx, s.corrupt.add}.drain()) }

// StartDrain starts a drain: from then on the store refuses SPAWN, claims and idle stops. Unless the mode is DETACH, the same transaction
// marks every running agent for automatic restart. Like SetDrainPhase and WithdrawDrain, it appends AGENT_DRAIN_PHASE to the history of each
// running or parked agent. A drain that ends by its age appends no event. Errors: Refusal DRAIN_INVALID_STATE when a drain is in progress;
// ErrInvalidArgument; ErrUnavailable.
func (s *Store) StartDrain(ctx context.Context, o DrainOptions) (*storev1.DrainRecord, error) {
	if o.Mode != agboxv1.DrainMode_DRAIN_MODE_PARK && o.Mode != agboxv1.DrainMode_DRAIN_MODE_DETACH || o.Wait < 0 {
		return nil, fmt.Errorf("drain in mode %s, waiting %s: %w", o.Mode, o.Wait, errdefs.ErrInvalidArgument)
	}
	rec := &storev1.DrainRecord{
		Mode: o.Mode, Phase: agboxv1.DrainPhase_DRAIN_PHASE_WAITING, Reason: valid(o.Reason),
		SaveEach: int64(o.SaveEach), SaveAll: int64(o.SaveAll), Exit: o.Exit,
	}
	err := s.update(ctx, func(t *txn) error {
		if t.draining() != nil {
			return drainState("the daemon is draining already")
		}
		var err error
		if rec.Epoch, err = epochIn(t.tx); err != nil {
			return err
		}
		rec.StartedAt, rec.WaitUntil = t.now.UnixNano(), t.now.Add(o.Wait).UnixNano()
		t.setDrain(rec)
		marks := setMarks
		if o.Mode == agboxv1.DrainMode_DRAIN_MODE_DETACH {
			marks = leaveMarks
		}
		t.recordDrain(rec, rec.GetPhase(), marks)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return proto.CloneOf(rec), nil
}

// SetDrainPhase advances a drain to a later phase. Errors: DRAIN_INVALID_STATE when that drain is over, whether or not another one has
// started; ErrUnavailable.
func (s *Store) SetDrainPhase(ctx context.Context, of *storev1.DrainRecord, phase agboxv1.DrainPhase) (changed bool, err error) {
	return updated(ctx, s, func(t *txn) (bool, error) {
		rec := t.draining()
		switch {
		case !isSameDrain(of, rec):
			return false, drainState("the daemon is not draining")
		case phase <= rec.GetPhase():
			return false, nil
		}
		if rec.Phase = phase; phase == agboxv1.DrainPhase_DRAIN_PHASE_SAVING {
			rec.SavingAt = t.now.UnixNano()
		}
		t.setDrain(rec)
		t.recordDrain(rec, phase, leaveMarks)
		return true, nil
	})
}

// WithdrawDrain withdraws the drain, and removes the restart mark from the agents that have a process. changed is false when there is no drain.
// Errors: ErrUnavailable.
func (s *Store) WithdrawDrain(ctx context.Context) (changed bool, err error) {
	return updated(ctx, s, func(t *txn) (bool, error) {
		rec := t.draining()
		if rec == nil {
			return false, nil
		}
		t.setDrain(nil)
		t.recordDrain(rec, agboxv1.DrainPhase_DRAIN_PHASE_UNSPECIFIED, takeMarks)
		return true, nil
	})
}

func (t *txn) setDrain(rec *storev1.DrainRecord) {
	t.drain = &drainChange{rec}
	if rec == nil {
		t.delete(bucketMeta, keyDrain)
		return
	}
	t.put(bucketMeta, keyDrain, rec)
}

func drainState(message string) error {
	return &Refusal{Reason: "DRAIN_INVALID_STATE", Metadata: map[string]string{}, Message: message, Class: errdefs.ErrFailedPrecondition}
}
