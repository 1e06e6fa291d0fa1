package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// Timeout says when a sandbox's deadline is; the spec's on_timeout applies then. The zero Timeout means never.
type Timeout struct {
	// After counts from the commit, by the store's clock; 0: never.
	After time.Duration
	// At replaces After unless it is zero.
	At time.Time
	// OnlyExtend keeps a later deadline, and also keeps no deadline.
	OnlyExtend bool
	// Begins is how long a sandbox whose lifetime has not started will run from READY on; 0: forever. Only OnlyExtend uses it.
	Begins time.Duration
}

// reasonTimeout is the reason of a stop, pause or delete at a deadline.
const reasonTimeout = "timeout"

// deadline returns the absolute time in Unix nanoseconds, 0: never, and the time that it counts from, 0: it is a time of day, or never.
func (to Timeout) deadline(now time.Time) (at, from int64, err error) {
	t := to.At
	switch {
	case t.IsZero() && to.After == 0:
		return 0, 0, nil
	case t.IsZero():
		t, from = now.Add(to.After), now.UnixNano()
	}
	if t.Before(time.Unix(0, 1)) || t.After(time.Unix(0, math.MaxInt64)) || to.After < 0 {
		return 0, 0, fmt.Errorf("deadline at %v, or %v from now: %w", to.At, to.After, errdefs.ErrInvalidArgument)
	}
	return t.UnixNano(), from, nil
}

// SetTimeout sets the deadline of a sandbox that is PENDING, READY or PAUSED and whose stop or delete was not requested, and appends
// SANDBOX_TIMEOUT_SET. The generation does not change. It returns the resulting deadline, zero for never; changed is false when it was the
// same before, or t.OnlyExtend kept it. Errors: Refusals SANDBOX_NOT_FOUND and SANDBOX_INVALID_STATE; ErrInvalidArgument for a time that
// cannot be stored; ErrDataLoss; ErrUnavailable.
func (s *Store) SetTimeout(ctx context.Context, id string, t Timeout) (deadline time.Time, changed bool, err error) {
	var at int64
	changed, err = updated(ctx, s, func(tx *txn) (did bool, err error) {
		at, did, err = tx.setTimeout(id, t)
		return did, err
	})
	if err != nil {
		return noTime, false, err
	}
	return deadlineTime(at), changed, nil
}

func (t *txn) setTimeout(id string, to Timeout) (at int64, changed bool, err error) {
	sb, err := t.sandbox(id, notRunning(id))
	if err != nil {
		return 0, false, err
	}
	if !sb.hasLifetime() {
		return 0, false, notRunning(id)
	}
	at, from, err := to.deadline(t.now)
	if err != nil {
		return 0, false, fmt.Errorf("set timeout of sandbox %s: %w", id, err)
	}
	have := sb.Desired.GetDeadlineAt()
	if at == have && (at != 0 || sb.Desired.GetDeadlineSet()) || to.OnlyExtend && isSooner(at, to.before(sb, t.now)) {
		return have, false, nil
	}
	sb.Desired = proto.CloneOf(sb.Desired)
	sb.Desired.DeadlineAt, sb.Desired.DeadlineFrom, sb.Desired.DeadlineSet = at, from, true
	t.put(bucketDesired, sb.ID, sb.Desired)
	t.append(sb, timeoutEvent(at))
	t.keep(sb, "")
	return at, true, nil
}

// before returns the deadline that OnlyExtend compares with: that of sb or, before its lifetime starts, the earliest possible one.
func (to Timeout) before(sb *Sandbox, now time.Time) int64 {
	d := sb.Desired
	if sb.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING && d.GetDeadlineAt() == 0 && !d.GetDeadlineSet() && to.Begins > 0 {
		return now.Add(to.Begins).UnixNano()
	}
	return d.GetDeadlineAt()
}

// hasLifetime reports whether sb has a deadline or can get one: it runs, is about to, or is paused.
func (sb *Sandbox) hasLifetime() bool {
	return sandboxstate.IsUp(sb.State) && sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_STOP
}

// isSooner compares deadlines; 0 is never.
func isSooner(a, b int64) bool { return a != 0 && (b == 0 || a < b) }

// DeadlineBy returns the deadline of sb by the clock at m; zero: none. It differs from the recorded one if the clock was wrong when that
// was set.
func (sb *Sandbox) DeadlineBy(m clockjump.Moment) time.Time {
	return m.Deadline(deadlineTime(sb.Desired.GetDeadlineAt()), deadlineTime(sb.Desired.GetDeadlineFrom()))
}

func deadlineTime(at int64) time.Time {
	if at == 0 {
		return noTime
	}
	return fromNanos(uint64(at))
}

func timeoutEvent(at int64) *agboxv1.SandboxEvent {
	d := &agboxv1.TimeoutDetails{}
	if at != 0 {
		d.DeadlineAt = timestamppb.New(time.Unix(0, at))
	}
	return &agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_SANDBOX_TIMEOUT_SET, Details: &agboxv1.SandboxEvent_TimeoutSet{TimeoutSet: d},
	}
}

// RequestExpire applies the spec's on_timeout, with reason timeout, if at the commit the sandbox is READY and wanted to run, and its
// deadline had passed at m, the time of the caller's decision. Otherwise it changes nothing. Errors: SANDBOX_NOT_FOUND; ErrDataLoss;
// ErrUnavailable.
func (s *Store) RequestExpire(ctx context.Context, id string, m clockjump.Moment) (changed bool, err error) {
	return s.changeLive(ctx, id, func(t *txn, sb *Sandbox) bool {
		at := sb.DeadlineBy(m.CheckedAt(t.now))
		if sb.State != agboxv1.SandboxState_SANDBOX_STATE_READY || sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_RUN ||
			at.IsZero() || at.After(m.Now) {
			return false
		}
		t.expire(sb)
		return true
	})
}

// expire stops the sandbox if on_timeout is unset or unknown, because a stop loses no files and uses no memory.
func (t *txn) expire(sb *Sandbox) {
	switch sb.Spec.GetOnTimeout() {
	case "pause":
		t.pause(sb, reasonTimeout)
	case "delete":
		t.requestDelete(sb, reasonTimeout, false)
	default:
		t.stop(sb, reasonTimeout)
	}
}

// begin starts the lifetime of a sandbox that became READY. It keeps a deadline in the future and an explicit never; otherwise the
// deadline is timeout from now, or none for 0.
func begin(d *storev1.Desired, timeout time.Duration, now time.Time) {
	if d.GetDeadlineAt() > now.UnixNano() || d.GetDeadlineAt() == 0 && d.GetDeadlineSet() {
		return
	}
	d.DeadlineAt, d.DeadlineFrom, d.DeadlineSet = 0, 0, false
	if timeout > 0 {
		d.DeadlineAt, d.DeadlineFrom = now.Add(timeout).UnixNano(), now.UnixNano()
	}
}
