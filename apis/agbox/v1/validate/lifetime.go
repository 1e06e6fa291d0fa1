package validate

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Bounds of a timeout that is not 0. 10 years are counted with the leap days of any ten.
const (
	minTimeout = time.Second
	maxTimeout = 3653 * 24 * time.Hour
)

func checkTimeout(errs *Errors, field string, d *durationpb.Duration) {
	errs.addIf(!lasts(d, minTimeout, maxTimeout) && !isZero(d), field, "must be 0 (never) or a duration from %v to 10 years", minTimeout)
}

// lasts reports whether a duration is valid and from least to most, or absent.
func lasts(d *durationpb.Duration, least, most time.Duration) bool {
	return d == nil || d.CheckValid() == nil && d.AsDuration() >= least && d.AsDuration() <= most
}

func isZero(d *durationpb.Duration) bool { return d.GetSeconds() == 0 && d.GetNanos() == 0 }

// SetTimeout checks a request to move a sandbox's end; now is the time by the clock that the end is meant for.
func SetTimeout(req *agboxv1.SetSandboxTimeoutRequest, now time.Time) (errs Errors) {
	checkUnknown(&errs, "set_timeout", req.ProtoReflect())
	errs.addIf(req.GetSandboxId() == "", "sandbox_id", "is required")
	switch when := req.GetWhen().(type) {
	case *agboxv1.SetSandboxTimeoutRequest_Timeout:
		checkTimeout(&errs, "timeout", when.Timeout)
	case *agboxv1.SetSandboxTimeoutRequest_DeadlineAt:
		checkDeadline(&errs, when.DeadlineAt, now)
	default:
		errs.add("timeout", "or deadline_at is required")
	}
	return errs
}

func checkDeadline(errs *Errors, at *timestamppb.Timestamp, now time.Time) {
	switch {
	case at.CheckValid() != nil:
		errs.add("deadline_at", "is not a time")
	case at.AsTime().Before(now):
		errs.add("deadline_at", "must not be in the past")
	case at.AsTime().After(now.Add(maxTimeout)):
		errs.add("deadline_at", "must be at most 10 years from now")
	}
}
