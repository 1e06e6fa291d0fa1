package inspect

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
)

// deadlines returns the deadlines of a sandbox that stays as it is, soonest first. An expired deadline is included until it was acted on.
func deadlines(rec plan.Record, spec *agboxv1.CreateSpec, pol plan.Policy) []*agboxv1.ExplainDeadline {
	if rec.Standing != plan.Live || rec.Desired == storev1.RunState_RUN_STATE_DELETE {
		return nil
	}
	var l deadlineList
	failed := rec.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED
	switch {
	case failed, rec.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED && rec.Desired == storev1.RunState_RUN_STATE_STOP:
		l.add("cleanup_ttl", rec.StateChangedAt, pol.CleanupTTL, "delete")
	case rec.Desired == storev1.RunState_RUN_STATE_RUN:
		l.at("timeout", rec.DeadlineAt, cmp.Or(spec.GetOnTimeout(), "stop"))
		l.add("idle_ttl", rec.IdleSince, pol.IdleTTL, "stop")
	case rec.Desired == storev1.RunState_RUN_STATE_PAUSE && !rec.DemotedAt.IsZero():
		l.add("stopped_gc_after", rec.DemotedAt, pol.StoppedGCAfter, "delete")
	case rec.State == agboxv1.SandboxState_SANDBOX_STATE_PAUSED:
		l.add("freeze_duration", rec.StateChangedAt, pol.FreezeDuration, "demote")
	}
	slices.SortStableFunc(l, func(a, b *agboxv1.ExplainDeadline) int { return a.GetAt().AsTime().Compare(b.GetAt().AsTime()) })
	return l
}

type deadlineList []*agboxv1.ExplainDeadline

// add adds the deadline ttl after since; none if since is zero or ttl is not positive.
func (l *deadlineList) add(kind string, since time.Time, ttl time.Duration, action string) {
	if ttl > 0 && !since.IsZero() {
		l.at(kind, since.Add(ttl), action)
	}
}

func (l *deadlineList) at(kind string, at time.Time, action string) {
	if !at.IsZero() {
		*l = append(*l, &agboxv1.ExplainDeadline{Kind: kind, At: timestamppb.New(at), Action: action})
	}
}
