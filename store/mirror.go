package store

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// Mirror is handed every change of a live sandbox and of its execs, so that records can be rebuilt from it when the
// database is lost. Its methods are called from the writer goroutine, after the commit and before its callers are
// answered and others see it; they must be quick. An error is the mirror's own to log and to mend. What it is handed is
// shared with the store and must not be changed, but may be kept. What it holds is never ahead of the database, but may
// be behind after a crash: MirrorAll catches up.
type Mirror interface {
	// Sandbox takes a new or changed sandbox.
	Sandbox(r *storev1.SandboxRecord)
	// Exec takes a new, cancelled or ended exec of a live sandbox. Its sandbox was handed over before.
	Exec(sandboxID string, r *storev1.ExecRecord)
	// Gone takes the ID of a sandbox that is DELETED.
	Gone(sandboxID string)
}

// recordVersion is SandboxRecord.version of what recordOf makes.
const recordVersion = 1

// recordOf shares what sb has: published sandboxes are immutable.
func recordOf(sb *Sandbox, instance string) *storev1.SandboxRecord {
	return &storev1.SandboxRecord{
		Version: recordVersion, SandboxId: sb.ID, Instance: instance, CreatedAt: toNanos(sb.CreatedAt),
		Spec: sb.Spec, Desired: sb.Desired, Progress: sb.Progress,
		State: int32(sb.State), StateChangedAt: toNanos(sb.StateChangedAt),
		ErrorCode: sb.ErrorCode, ErrorMessage: sb.ErrorMessage,
		LastSequence: sb.LastSequence, Preparing: sb.Preparing, IdleSince: toNanos(sb.IdleSince),
	}
}

// toNanos gives 0 for no time.
func toNanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// reflection is what the mirror is handed of one group: of each sandbox and exec its newest record, once.
type reflection struct {
	sandboxes []*storev1.SandboxRecord
	execs     []execInSandbox
	gone      []string
}

type execInSandbox struct {
	sandboxID string
	record    *storev1.ExecRecord
}

// reflect collects what the group has changed, and what MirrorAll asked for. All ops are applied to tx.
func (s *Store) reflect(g *group, tx *bolt.Tx) reflection {
	var r reflection
	if s.o.Mirror == nil {
		return r
	}
	seen := map[touch]bool{}
	add := func(c touch) {
		if seen[c] {
			return
		}
		seen[c] = true
		r.add(s, g, tx, c)
	}
	for id := range g.changes.sandboxes {
		add(touch{id, ""})
	}
	for _, c := range g.shown {
		add(c)
	}
	for _, t := range g.accepted {
		for _, o := range t.ops {
			if id, ok := o.ofExec(); ok {
				add(touch{id, string(o.key)})
			}
		}
	}
	return r
}

// ofExec returns the sandbox of the exec whose record o writes.
func (o op) ofExec() (sandboxID string, ok bool) {
	if o.kind != opPut {
		return "", false
	}
	for _, prefix := range []string{prefixExecConfig, prefixExecDesired, prefixExecStatus} {
		if id, ok := strings.CutPrefix(o.bucket, prefix); ok {
			return id, true
		}
	}
	return "", false
}

// add takes the newest record of c. What does not decode is noted as in every read, and not mirrored.
func (r *reflection) add(s *Store, g *group, tx *bolt.Tx, c touch) {
	sb, changed := g.changes.sandboxes[c.sandboxID]
	if !changed {
		sb = s.index.sandboxes[c.sandboxID]
	}
	switch {
	case sb == nil && changed && c.execID == "":
		r.gone = append(r.gone, c.sandboxID)
	case sb == nil, sb.Corrupt:
	case c.execID == "":
		r.sandboxes = append(r.sandboxes, recordOf(sb, s.instance))
	default:
		if e, err := (loader{tx, s.corrupt.add}).exec(c.sandboxID, c.execID); err == nil {
			record := &storev1.ExecRecord{ExecId: e.ID, Request: e.Request, Desired: e.Desired, End: e.End}
			r.execs = append(r.execs, execInSandbox{c.sandboxID, record})
		}
	}
}

func (r *reflection) tell(m Mirror) {
	for _, sb := range r.sandboxes {
		m.Sandbox(sb)
	}
	for _, e := range r.execs {
		m.Exec(e.sandboxID, e.record)
	}
	for _, id := range r.gone {
		m.Gone(id)
	}
}

// MirrorAll hands every live sandbox with all its execs, also the ended ones, to the mirror. What is written meanwhile
// is handed over in its order. Without a mirror it does nothing. Errors: ErrUnavailable.
func (s *Store) MirrorAll(ctx context.Context) error {
	if s.o.Mirror == nil {
		return nil
	}
	for _, id := range s.LiveIDs() {
		if err := s.mirrorOne(ctx, id); err != nil {
			return fmt.Errorf("mirror sandbox %s: %w", id, err)
		}
	}
	return nil
}

// mirrorOne takes a place in the writer's queue for each part, so that nothing older is handed over after a change.
func (s *Store) mirrorOne(ctx context.Context, id string) error {
	var next []byte
	for more := true; more; {
		err := s.update(ctx, func(t *txn) error {
			next, more = t.show(id, next)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// show asks for at most maxRead execs of a sandbox, beginning with key from, and for the sandbox itself when that is nil.
func (t *txn) show(id string, from []byte) (next []byte, more bool) {
	if t.live(id) == nil {
		return nil, false
	}
	if from == nil {
		t.shown = append(t.shown, touch{id, ""})
	}
	b := t.tx.Bucket([]byte(prefixExecConfig + id))
	if b == nil {
		return nil, false
	}
	c := b.Cursor()
	n := 0
	for k, _ := c.Seek(from); k != nil; k, _ = c.Next() {
		if n == maxRead {
			return bytes.Clone(k), true
		}
		t.shown = append(t.shown, touch{id, string(k)})
		n++
	}
	return nil, false
}
