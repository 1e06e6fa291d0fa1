package rehydrate

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

func recordOf(change func(*storev1.SandboxRecord)) *storev1.SandboxRecord {
	rec := &storev1.SandboxRecord{
		Version: 1, SandboxId: "box-2", Instance: ours, Spec: spec(), State: 2, LastSequence: 7, StateChangedAt: now.Add(-time.Hour).UnixNano(),
		Desired: &storev1.Desired{Generation: 3, RunState: storev1.RunState_RUN_STATE_RUN, DeadlineAt: now.Add(time.Minute).UnixNano()},
	}
	change(rec)
	return rec
}

// What is missing may have moved the deadline, or brought the sandbox back from where a clock would remove it.
func TestATornRecordEndsNothingSoonerThanANewOne(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*storev1.SandboxRecord)
		deadline time.Time // zero: never
	}{
		{"an hour is configured", func(*storev1.SandboxRecord) {}, now.Add(time.Hour)},
		{"its own timeout", func(r *storev1.SandboxRecord) { r.Spec.Timeout = durationpb.New(2 * time.Hour) }, now.Add(2 * time.Hour)},
		{"later than that", func(r *storev1.SandboxRecord) { r.Desired.DeadlineAt = now.Add(9 * time.Hour).UnixNano() }, now.Add(9 * time.Hour)},
		{"by default it ends never", func(r *storev1.SandboxRecord) { r.Spec.Timeout = durationpb.New(0) }, time.Time{}},
		{"it had none", func(r *storev1.SandboxRecord) { r.Desired.DeadlineAt = 0 }, time.Time{}},
	} {
		rec := recordOf(c.change)
		rec.Desired.DemotedAt = now.Add(-700 * time.Hour).UnixNano()
		before := proto.CloneOf(rec)
		in := input()
		in.Known = []Known{{Record: rec, Torn: true}}
		got := one(t, in)
		want := int64(0)
		if !c.deadline.IsZero() {
			want = c.deadline.UnixNano()
		}
		if d := got.Record.GetDesired(); d.GetDeadlineAt() != want || d.GetDemotedAt() != now.UnixNano() || got.Record.GetStateChangedAt() != now.UnixNano() {
			t.Errorf("%s: %v", c.name, got.Record)
		}
		if !slices.Equal(got.Defaulted, []string{"deadline_at", "last_sequence", "record", "state_changed_at"}) || !proto.Equal(rec, before) {
			t.Errorf("%s: defaulted %v", c.name, got.Defaulted)
		}
	}
}

func TestATornRecordGivesNoNumberOfAnEventTwice(t *testing.T) {
	for _, last := range []uint64{7, uint64(now.Unix()) + 5} {
		in := input()
		in.Known = []Known{{Record: recordOf(func(r *storev1.SandboxRecord) { r.LastSequence = last }), Torn: true}}
		if got := one(t, in).Record.GetLastSequence(); got < last+1000 || got < uint64(now.Unix()) {
			t.Errorf("after %d comes %d", last, got)
		}
	}
}

func TestExecsThatMayBeMissingAreTold(t *testing.T) {
	in := input()
	rec := recordOf(func(*storev1.SandboxRecord) {})
	in.Known = []Known{{Record: rec, TornExecs: true}}
	if got := one(t, in); !slices.Equal(got.Defaulted, []string{"execs"}) || !proto.Equal(got.Record, rec) {
		t.Errorf("defaulted %v of %v", got.Defaulted, got.Record)
	}
}
