package store

import (
	"fmt"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// state sets the fields of sb that derive from events. It reads few of them: the first of the current run of the state, which
// sandbox-state names, and the newest ones back to the one that decides the rest. It reports whether there is a state.
func (l loader) state(sb *Sandbox) bool {
	var ok bool
	if sb.LastSequence, ok = l.lastSequence(sb.ID); !ok {
		return false
	}
	start := l.runStart(sb)
	if start == 0 {
		start = l.findRun(sb)
	}
	if start == 0 {
		return false
	}
	if decidedByEvents(sb) {
		l.walkBack(sb.ID, start, noSequence, func(ev *agboxv1.SandboxEvent) bool { return decide(sb, ev, start) })
	}
	return true
}

func (l loader) lastSequence(id string) (uint64, bool) {
	seq, err := decodeInt(lastKey(l.tx, prefixEvents+id))
	return seq, l.noted(prefixEvents+id, "last", id, err) == nil
}

// runStart reads the state and its time of change from the event that sandbox-state names; 0 when that does not decode.
func (l loader) runStart(sb *Sandbox) uint64 {
	start, err := decodeInt(get(l.tx, bucketState, []byte(sb.ID)))
	if l.noted(bucketState, sb.ID, sb.ID, err) != nil {
		return 0
	}
	key := encodeInt(start)
	ev, err := l.event(sb.ID)(key, get(l.tx, prefixEvents+sb.ID, key))
	if err != nil {
		return 0
	}
	if ev.GetSandboxState() == agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED {
		_ = l.noted(bucketState, sb.ID, sb.ID, fmt.Errorf("event %d has no state: %w", start, errdefs.ErrDataLoss))
		return 0
	}
	sb.State, sb.StateChangedAt = ev.GetSandboxState(), runSince(ev)
	return start
}

// findRun derives the run without sandbox-state, by reading all its events.
func (l loader) findRun(sb *Sandbox) (start uint64) {
	l.walkBack(sb.ID, 1, noSequence, func(ev *agboxv1.SandboxEvent) bool {
		state := ev.GetSandboxState()
		switch {
		case state == agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED:
			return true
		case start != 0 && state != sb.State:
			return false
		}
		start, sb.State, sb.StateChangedAt = ev.GetSequence(), state, runSince(ev)
		return !isRebuilt(ev)
	})
	return start
}

// decidedByEvents reports whether events determine more than the state and its time of change.
func decidedByEvents(sb *Sandbox) bool {
	switch sb.State {
	case agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		return true
	case agboxv1.SandboxState_SANDBOX_STATE_PENDING:
		return sb.Desired.GetAttempt() == storev1.Attempt_ATTEMPT_CREATE
	case agboxv1.SandboxState_SANDBOX_STATE_READY:
		return !sb.execsOfNoAgent()
	}
	return false
}

// decide applies the newest event that determines why sb failed, that it prepares, or when it became idle. It reports whether the walk
// must continue.
func decide(sb *Sandbox, ev *agboxv1.SandboxEvent, start uint64) (further bool) {
	switch {
	case isFailure(sb, ev):
		sb.ErrorCode, sb.ErrorMessage = failureOf(ev)
	case isPreparing(sb, ev):
		sb.Preparing = true
	case sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY && (endsActivity(ev) || ev.GetSequence() == start):
		sb.idleFrom, sb.history.activity = idleSince(ev), ev.GetSequence()
	default:
		return true
	}
	return false
}

// walkBack calls fn with the events of a sandbox with sequences from before-1 down to first, until fn returns false. It notes and skips
// events that do not decode.
func (l loader) walkBack(id string, first, before uint64, fn func(*agboxv1.SandboxEvent) bool) {
	walkBack(l.tx, prefixEvents+id, first, before, l.event(id), fn)
}

// walkBack calls fn with the numbered records of a bucket from before-1 down to first, until fn returns false. It skips those that read
// cannot decode.
func walkBack[R any](tx *bolt.Tx, bucket string, first, before uint64, read decoder[R], fn func(R) bool) {
	for k, v := range recordsBack(tx, bucket, before) {
		seq, err := decodeInt(k)
		if err != nil || seq < first {
			return
		}
		if r, err := read(k, v); err == nil && !fn(r) {
			return
		}
	}
}
