package validate_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

const years10 = 3653 * 24 * time.Hour

func TestLifetimes(t *testing.T) {
	const bounds = "timeout: must be 0 (never) or a duration from 1s to 10 years"
	for _, tc := range []struct {
		name string
		spec *agboxv1.CreateSpec
		want string
	}{
		{"nothing", &agboxv1.CreateSpec{}, ""},
		{"never", &agboxv1.CreateSpec{Timeout: durationpb.New(0)}, ""},
		{"the shortest", &agboxv1.CreateSpec{Timeout: durationpb.New(time.Second), OnTimeout: "stop"}, ""},
		{"the longest", &agboxv1.CreateSpec{Timeout: durationpb.New(years10), OnTimeout: "pause", AutoResume: true}, ""},
		{"an action without a timeout, for SetSandboxTimeout", &agboxv1.CreateSpec{OnTimeout: "delete"}, ""},
		{"too short", &agboxv1.CreateSpec{Timeout: durationpb.New(time.Second - 1)}, bounds},
		{"too long", &agboxv1.CreateSpec{Timeout: durationpb.New(years10 + 1)}, bounds},
		{"negative", &agboxv1.CreateSpec{Timeout: durationpb.New(-time.Hour)}, bounds},
		{"no duration", &agboxv1.CreateSpec{Timeout: &durationpb.Duration{Seconds: 1, Nanos: -1}}, bounds},
		{"an unknown action", &agboxv1.CreateSpec{OnTimeout: "kill"}, `on_timeout: on_timeout "kill" is not known: write "stop", "pause", "delete"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.spec.Image = "a"
			check(t, validate.Create(tc.spec), tc.want)
		})
	}
}

func TestSetTimeout(t *testing.T) {
	now := time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
	after := func(d time.Duration) *agboxv1.SetSandboxTimeoutRequest {
		return &agboxv1.SetSandboxTimeoutRequest{SandboxId: "a", When: &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: durationpb.New(d)}}
	}
	at := func(ts *timestamppb.Timestamp) *agboxv1.SetSandboxTimeoutRequest {
		return &agboxv1.SetSandboxTimeoutRequest{SandboxId: "a", When: &agboxv1.SetSandboxTimeoutRequest_DeadlineAt{DeadlineAt: ts}}
	}
	for _, tc := range []struct {
		name string
		req  *agboxv1.SetSandboxTimeoutRequest
		want string
	}{
		{"from now", after(time.Hour), ""},
		{"never", after(0), ""},
		{"too short", after(time.Millisecond), "timeout: from 1s to 10 years"},
		{"negative", after(-1), "timeout: from 1s to 10 years"},
		{"a time to come", at(timestamppb.New(now.Add(time.Hour))), ""},
		{"now", at(timestamppb.New(now)), ""},
		{"in ten years", at(timestamppb.New(now.Add(years10))), ""},
		{"beyond ten years", at(timestamppb.New(now.Add(years10 + 1))), "deadline_at: at most 10 years"},
		{"in the past", at(timestamppb.New(now.Add(-1))), "deadline_at: must not be in the past"},
		{"the time zero is no never", at(&timestamppb.Timestamp{}), "deadline_at: must not be in the past"},
		{"no time", at(&timestamppb.Timestamp{Nanos: -1}), "deadline_at: is not a time"},
		{"nothing", &agboxv1.SetSandboxTimeoutRequest{}, "sandbox_id: is required; timeout: timeout or deadline_at is required"},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, validate.SetTimeout(tc.req, now), tc.want) })
	}
}
