package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Rebuilt is what recovery found of one live sandbox that is missing from the database.
type Rebuilt struct {
	// Record is what RecordRebuilt records. A last_sequence of 0 is unknown.
	Record *storev1.SandboxRecord
	// Execs of the sandbox, active and ended. A sequence of 0 is unknown.
	Execs []*storev1.ExecRecord
	// Defaulted lists the names of the fields that recovery could not determine.
	Defaulted []string
}

// Limits of one transaction of RecordRebuilt, which records at least one sandbox.
const (
	rebuiltSandboxes = 64
	rebuiltExecs     = 4096
)

// RecordRebuilt records sandboxes that recovery rebuilt without the database, each with its execs in one transaction, and returns the IDs of the
// recorded ones, in order. Each history starts with SANDBOX_REHYDRATED, whose sequence follows the last known one; earlier events are gone
// as if the history limit had dropped them. Everything else is recorded as given, except:
//
//   - A sandbox whose ID was ever used is skipped, unless it is hidden (see Unproven); recording a hidden one reveals it. RecordRebuilt never
//     changes existing records and may be repeated.
//   - A name that another sandbox holds is dropped; "name" is added to the defaulted fields.
//   - An exec is skipped if its ID was ever used, it belongs to another sandbox, or it has no nonce; "execs" is added to the defaulted
//     fields.
//   - Recorded agents whose sandbox ID is this one become its agents.
//
// Errors: ErrInvalidArgument for each record that is not of a live sandbox, after all others were recorded; ErrUnavailable and ctx's,
// together with the IDs recorded until then.
func (s *Store) RecordRebuilt(ctx context.Context, list []Rebuilt) (recorded []string, err error) {
	var refused []error
	for len(list) > 0 {
		n := rebuiltAtOnce(list)
		var failed error
		for i, err := range s.updateAll(ctx, s.rebuiltWrites(list[:n])) { // those after a failed one may have been recorded
			switch {
			case err == nil:
				recorded = append(recorded, list[i].Record.GetSandboxId())
			case errdefs.IsInvalidArgument(err):
				refused = append(refused, err)
			case !errdefs.IsAlreadyExists(err) && failed == nil:
				failed = fmt.Errorf("record rebuilt sandbox %s: %w", list[i].Record.GetSandboxId(), err)
			}
		}
		if failed != nil {
			return recorded, failed
		}
		list = list[n:]
	}
	return recorded, errors.Join(refused...)
}

// rebuiltAtOnce returns how many sandboxes of the list go into one transaction.
func rebuiltAtOnce(list []Rebuilt) int {
	execs := 0
	for i, r := range list {
		execs += len(r.Execs)
		if i == rebuiltSandboxes || i > 0 && execs > rebuiltExecs {
			return i
		}
	}
	return len(list)
}

func (s *Store) rebuiltWrites(list []Rebuilt) []func(*txn) error {
	var out []func(*txn) error
	for _, r := range list {
		a, err := newRebuilt(r)
		out = append(out, func(t *txn) error {
			if err != nil {
				return err
			}
			return t.recordRebuilt(a)
		})
	}
	return out
}

// rebuiltSandbox is a validated private copy of a Rebuilt.
type rebuiltSandbox struct {
	sb        *Sandbox // without a state
	state     agboxv1.SandboxState
	execs     []Exec
	details   *agboxv1.RehydratedDetails
	idleSince int64
}

// recordRebuilt stages a: reservations, records and the first event of its history.
func (t *txn) recordRebuilt(a *rebuiltSandbox) error {
	sb := a.sb
	hidden := t.isHidden(sb.ID)
	if !hidden && get(t.tx, bucketSandboxID, []byte(sb.ID)) != nil {
		return sandboxExists(sb.ID)
	}
	if hidden {
		t.reveal(sb.ID)
	}
	a.number(t.now)
	t.rebuiltExecs(a)
	t.rebuiltName(a)
	if sb.CreatedAt.IsZero() {
		sb.CreatedAt = fromNanos(uint64(t.now.UnixNano()))
	}
	sb.Agents = t.agentsIn(sb.ID)
	a.startHistory(t.now)
	progress := sb.Progress
	sb.Progress = &storev1.Progress{}
	t.progress(sb, progress)
	t.putInt(bucketSandboxID, sb.ID, uint64(sb.CreatedAt.UnixNano()))
	t.put(bucketConfig, sb.ID, sb.Spec)
	t.put(bucketDesired, sb.ID, sb.Desired)
	t.putInt(bucketTrimmed, sb.ID, sb.LastSequence)
	t.append(sb, &agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_SANDBOX_REHYDRATED, SandboxState: a.state,
		Details: &agboxv1.SandboxEvent_Rehydrated{Rehydrated: a.details},
	})
	t.keep(sb, "")
	t.count(sb.Desired.GetCaller(), usage{sandboxes: 1})
	for _, execID := range sb.ActiveExecs {
		t.keep(sb, execID)
	}
	return nil
}

// rebuiltName drops a name that another sandbox holds.
func (t *txn) rebuiltName(a *rebuiltSandbox) {
	sb := a.sb
	switch {
	case sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE:
		return
	case sb.Name != "" && t.nameHolder(sb.Name) != "":
		sb.Name, sb.Desired.Name = "", ""
		a.defaulted("name")
	}
	t.holdName(sb.ID, sb.Name)
}

// rebuiltExecs stages the execs whose IDs are free, and skips the others.
func (t *txn) rebuiltExecs(a *rebuiltSandbox) {
	sb := a.sb
	seen := map[string]bool{}
	for _, e := range a.execs {
		if seen[e.ID] || t.execTaken(e.ID, sb.ID) {
			a.defaulted("execs")
			continue
		}
		seen[e.ID] = true
		created := e.Desired.GetCreatedAt()
		if created <= 0 {
			created = t.now.UnixNano()
		}
		t.putExec(e, created)
		if e.End != nil {
			t.put(prefixExecStatus+sb.ID, e.ID, e.End)
		} else {
			sb.ActiveExecs = withID(sb.ActiveExecs, e.ID)
			t.activate(e)
		}
	}
}

// updateAll runs each fn as a separate request, in order; requests that the writer groups share one transaction. After one cannot be
// queued, no later one is queued.
func (s *Store) updateAll(ctx context.Context, fns []func(*txn) error) []error {
	errs := make([]error, len(fns))
	requests := make([]*request, 0, len(fns))
	for i, fn := range fns {
		r := newRequest(fn)
		if errs[i] = ctx.Err(); errs[i] == nil {
			errs[i] = s.enqueue(ctx, r)
		}
		if errs[i] != nil {
			errs = errs[:i+1]
			break
		}
		requests = append(requests, r)
	}
	for i, r := range requests { // the writer answers each, even if ctx has ended
		errs[i] = <-r.done
	}
	return errs
}
