package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Rebuilt is what was found of one live sandbox that is not in the database.
type Rebuilt struct {
	// Record as it is to be. A last_sequence of 0 is one that is not known.
	Record *storev1.SandboxRecord
	// Execs of the sandbox, active and ended. A sequence of 0 is one that is not known.
	Execs []*storev1.ExecRecord
	// Defaulted are the names of the fields that could not be known.
	Defaulted []string
}

// What one transaction of Adopt takes: so many sandboxes, or execs of them, but at least one sandbox.
const (
	adoptSandboxes = 64
	adoptExecs     = 4096
)

// Adopt records sandboxes that were rebuilt without the database, each with its execs in one transaction, and returns the
// IDs of those that it took, in order. Their history begins with SANDBOX_REHYDRATED, which follows the last sequence known;
// what was before is gone as if the history limit had dropped it. Everything else is as the record says, but:
//
//   - A sandbox whose ID was ever used is left out, unless it is hidden (see Unproven), and then it is hidden no more: what is there is
//     never changed. So Adopt may be repeated.
//   - A name that another one holds is not taken; "name" is then among the defaulted fields.
//   - An exec whose ID was ever used, that is of another sandbox, or has no nonce, is left out; "execs" is then defaulted.
//   - Agents that are there and say that they are in it are in it.
//
// Errors: ErrInvalidArgument for each record that is none of a live sandbox, after all others were adopted; ErrUnavailable,
// and ctx's, with what was adopted all the same.
func (s *Store) Adopt(ctx context.Context, list []Rebuilt) (adopted []string, err error) {
	var refused []error
	for len(list) > 0 {
		n := adoptAtOnce(list)
		var failed error
		for i, err := range s.updateAll(ctx, s.adoptions(list[:n])) { // those after one that failed may have been taken
			switch {
			case err == nil:
				adopted = append(adopted, list[i].Record.GetSandboxId())
			case errdefs.IsInvalidArgument(err):
				refused = append(refused, err)
			case !errdefs.IsAlreadyExists(err) && failed == nil:
				failed = fmt.Errorf("adopt sandbox %s: %w", list[i].Record.GetSandboxId(), err)
			}
		}
		if failed != nil {
			return adopted, failed
		}
		list = list[n:]
	}
	return adopted, errors.Join(refused...)
}

// adoptAtOnce returns how many of the list make one transaction.
func adoptAtOnce(list []Rebuilt) int {
	execs := 0
	for i, r := range list {
		execs += len(r.Execs)
		if i == adoptSandboxes || i > 0 && execs > adoptExecs {
			return i
		}
	}
	return len(list)
}

func (s *Store) adoptions(list []Rebuilt) []func(*txn) error {
	var out []func(*txn) error
	for _, r := range list {
		a, err := newAdoption(r)
		out = append(out, func(t *txn) error {
			if err != nil {
				return err
			}
			return t.adopt(a)
		})
	}
	return out
}

// adoption is a Rebuilt that is known to be a live sandbox, in the store's own terms and nobody else's to change.
type adoption struct {
	sb        *Sandbox // without a state
	state     agboxv1.SandboxState
	execs     []Exec
	details   *agboxv1.RehydratedDetails
	idleSince int64
}

// adopt stages a: reservations, records and the event that its history begins with.
func (t *txn) adopt(a *adoption) error {
	sb := a.sb
	hidden := t.isHidden(sb.ID)
	if !hidden && get(t.tx, bucketSandboxID, []byte(sb.ID)) != nil {
		return sandboxExists(sb.ID)
	}
	if hidden {
		if err := t.reveal(sb.ID); err != nil {
			return err
		}
	}
	a.number(t.now)
	if err := t.adoptExecs(a); err != nil {
		return err
	}
	if err := t.adoptName(a); err != nil {
		return err
	}
	if sb.CreatedAt.IsZero() {
		sb.CreatedAt = fromNanos(uint64(t.now.UnixNano()))
	}
	sb.Agents = t.agentsIn(sb.ID)
	a.startHistory(t.now)
	progress := sb.Progress
	sb.Progress = &storev1.Progress{}
	if _, err := t.progress(sb, progress); err != nil {
		return err
	}
	if err := errors.Join(
		t.putInt(bucketSandboxID, sb.ID, uint64(sb.CreatedAt.UnixNano())),
		t.put(bucketConfig, sb.ID, sb.Spec),
		t.put(bucketDesired, sb.ID, sb.Desired),
		t.putInt(bucketTrimmed, sb.ID, sb.LastSequence),
	); err != nil {
		return err
	}
	if err := t.append(sb, a.event()); err != nil {
		return err
	}
	t.keep(sb, "")
	for _, execID := range sb.ActiveExecs {
		t.keep(sb, execID)
	}
	return nil
}

// adoptName lets go of a name that is taken.
func (t *txn) adoptName(a *adoption) error {
	sb := a.sb
	switch {
	case sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE:
		return nil
	case sb.Name != "" && t.nameHolder(sb.Name) != "":
		sb.Name, sb.Desired.Name = "", ""
		a.defaulted("name")
	}
	return t.holdName(sb.ID, sb.Name)
}

// adoptExecs stages those that can be taken.
func (t *txn) adoptExecs(a *adoption) error {
	sb := a.sb
	seen := map[string]bool{}
	for _, e := range a.execs {
		if seen[e.ID] || t.execTaken(e.ID, sb.ID) {
			a.defaulted("execs")
			continue
		}
		seen[e.ID] = true
		if err := t.adoptExec(e); err != nil {
			return err
		}
		if e.End == nil {
			sb.ActiveExecs = withID(sb.ActiveExecs, e.ID)
			t.changes.execs[e.ID] = sb.ID
		}
	}
	return nil
}

func (t *txn) adoptExec(e Exec) error {
	created := e.Desired.GetCreatedAt()
	if created <= 0 {
		created = t.now.UnixNano()
	}
	err := errors.Join(
		t.putInt(bucketExecID, e.ID, uint64(created)),
		t.put(bucketExecRefs, e.ID, &storev1.ExecRef{SandboxId: e.SandboxID}),
		t.put(prefixExecConfig+e.SandboxID, e.ID, e.Request),
		t.put(prefixExecDesired+e.SandboxID, e.ID, e.Desired),
	)
	if err == nil && e.End != nil {
		err = t.put(prefixExecStatus+e.SandboxID, e.ID, e.End)
	}
	return err
}
