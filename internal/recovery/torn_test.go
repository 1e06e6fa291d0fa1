package recovery

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

func recordOf(change func(*storev1.SandboxRecord)) *storev1.SandboxRecord {
	rec := &storev1.SandboxRecord{
		Version: 1, SandboxId: boxID, Instance: ours, Spec: spec(), State: 2, LastSequence: 7, StateChangedAt: now.Add(-time.Hour).UnixNano(),
		Desired: &storev1.Desired{Generation: 3, RunState: storev1.RunState_RUN_STATE_RUN, DeadlineAt: now.Add(time.Minute).UnixNano()},
	}
	change(rec)
	return rec
}

// A lost change may have moved the deadline, or revived the sandbox from a state in which a clock would remove it.
func TestTornRecordHasNoEarlierDeadlineThanANewOne(t *testing.T) {
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
		before := proto.CloneOf(rec)
		in := input(found(t))
		in.Known = []Known{{Record: rec, Torn: true}}
		got := one(t, in)
		want := int64(0)
		if !c.deadline.IsZero() {
			want = c.deadline.UnixNano()
		}
		if d := got.Record.GetDesired(); d.GetDeadlineAt() != want || d.GetRunState() != storev1.RunState_RUN_STATE_RUN || got.Record.GetStateChangedAt() != now.UnixNano() {
			t.Errorf("%s: %v", c.name, got.Record)
		}
		if !slices.Equal(got.Defaulted, []string{"deadline_at", "execs", "last_sequence", "record", "state_changed_at"}) || !proto.Equal(rec, before) {
			t.Errorf("%s: defaulted %v", c.name, got.Defaulted)
		}
	}
}

func TestTornRecordReusesNoSequence(t *testing.T) {
	for _, last := range []uint64{7, uint64(now.Unix()) + 5} {
		in := input(found(t))
		in.Known = []Known{{Record: recordOf(func(r *storev1.SandboxRecord) { r.LastSequence = last }), Torn: true}}
		if got := one(t, in).Record.GetLastSequence(); got < last+1000 || got < uint64(now.Unix()) {
			t.Errorf("after %d comes %d", last, got)
		}
	}
}

// A torn record may have any past state of its sandbox.
func TestEngineDecidesAboutATornRecord(t *testing.T) {
	const (
		pending = agboxv1.SandboxState_SANDBOX_STATE_PENDING
		ready   = agboxv1.SandboxState_SANDBOX_STATE_READY
		failed  = agboxv1.SandboxState_SANDBOX_STATE_FAILED
		stopped = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
		paused  = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
		run     = storev1.RunState_RUN_STATE_RUN
		stop    = storev1.RunState_RUN_STATE_STOP
		pause   = storev1.RunState_RUN_STATE_PAUSE
		ownCode = "it ended with a code of its own, and has a policy"
	)
	type is struct {
		state agboxv1.SandboxState
		want  storev1.RunState
	}
	creating, resuming := is{pending, run}, is{pending, run}
	records := map[string]is{
		"being created": creating, "being resumed": resuming, "ready": {ready, run}, "being stopped": {ready, stop}, "stopped": {stopped, stop},
		"paused": {paused, pause}, "failed": {failed, run},
	}
	for _, c := range []struct {
		engine string
		change func(*Found, *Input)
		want   map[string]is // "" is for the others
	}{
		{"it runs", func(*Found, *Input) {}, map[string]is{"": {ready, run}}},
		{"it is frozen", func(f *Found, _ *Input) { f.Containers[0].State, f.Containers[0].Paused = dockerx.StatePaused, true }, map[string]is{"": {paused, pause}}},
		{"it heeded TERM", func(f *Found, _ *Input) { exited(f, 143) },
			map[string]is{"": {stopped, stop}, "failed": {failed, run}, "being stopped": {ready, stop}}},
		{"it heeded TERM before this boot", func(f *Found, in *Input) {
			exited(f, 143)
			in.LifeSince = now.Add(-10 * time.Second)
		}, map[string]is{"": {stopped, stop}, "failed": {failed, run}, "being stopped": {ready, stop}}},
		{ownCode, func(f *Found, _ *Input) { exited(f, 3) }, map[string]is{"": {stopped, stop}, "failed": {failed, run}, "being stopped": {ready, stop}}},
		{"it was killed", func(f *Found, _ *Input) { exited(f, 137) },
			map[string]is{"": {failed, run}, "stopped": {stopped, stop}, "being stopped": {ready, stop}}},
		{"the engine's death took it", func(f *Found, _ *Input) { exited(f, 255) },
			map[string]is{"": {ready, run}, "failed": {failed, run}, "stopped": {stopped, stop}, "being stopped": {ready, stop}}},
		{"it was never started", func(f *Found, _ *Input) {
			firstRun(f)
			c := &f.Containers[0]
			c.State, c.Running, c.StartedAt = dockerx.StateCreated, false, time.Time{}
		}, map[string]is{"": {failed, run}, "being created": {pending, run}, "stopped": {stopped, stop}, "being stopped": {ready, stop}}},
		{"only a network is there", func(f *Found, _ *Input) { f.Containers = nil }, map[string]is{"": {failed, run}}},
		{"nothing is there", func(f *Found, _ *Input) { f.Containers, f.Networks = nil, nil }, map[string]is{"": {failed, run}}},
	} {
		for name, was := range records {
			t.Run(c.engine+"/"+name, func(t *testing.T) {
				rec := recordOf(func(r *storev1.SandboxRecord) {
					r.State, r.Desired.RunState, r.Desired.Name, r.CreatedAt = int32(was.state), was.want, "web", 5
					r.Desired.Attempt = storev1.Attempt_ATTEMPT_RESUME
					if c.engine == ownCode {
						r.Spec.RestartPolicy = "always"
					}
					if name == "being created" {
						r.Desired.Attempt = storev1.Attempt_ATTEMPT_CREATE
					}
				})
				f, in := found(t), input()
				c.change(&f, &in)
				in.Found, in.Known = []Found{f}, []Known{{Record: rec, Torn: true}}
				want, ok := c.want[name]
				if !ok {
					want = c.want[""]
				}
				got := one(t, in)
				r := got.Record
				if have := (is{agboxv1.SandboxState(r.GetState()), r.GetDesired().GetRunState()}); have != want {
					t.Errorf("%v, want %v", have, want)
				}
				if got.Source != FromLog || r.GetDesired().GetName() != "web" || r.GetCreatedAt() != 5 || !slices.Contains(got.Defaulted, "record") {
					t.Errorf("%s, %v, %v", got.Source, r, got.Defaulted)
				}
				if c.engine != ownCode && !proto.Equal(r.GetSpec(), spec()) {
					t.Errorf("the spec is %v", r.GetSpec())
				}
			})
		}
	}
}

func TestTornRecordWithADeleteIsDeleted(t *testing.T) {
	in := input(found(t))
	in.Found[0].Containers = nil
	in.Known = []Known{{Record: recordOf(func(r *storev1.SandboxRecord) { r.Desired.RunState = storev1.RunState_RUN_STATE_DELETE }), Torn: true}}
	in.Found = nil // the store has it before the first engine call
	if got := one(t, in); got.Record.GetDesired().GetRunState() != storev1.RunState_RUN_STATE_DELETE {
		t.Errorf("%v", got.Record)
	}
}

// The record may be older than the containers: a service that it does not have would be removed.
func TestTornRecordsSpecIsUsedIfTheContainersMatch(t *testing.T) {
	in := input(found(t))
	in.Known = []Known{{Record: recordOf(func(r *storev1.SandboxRecord) { r.Spec = &agboxv1.CreateSpec{Image: "old:1"} }), Torn: true}}
	if got := one(t, in).Record.GetSpec(); got.GetImage() != "base:1" || len(got.GetRequiredServices()) != 1 || got.GetEnvs()["TOKEN"] != "secret" {
		t.Errorf("%v", got)
	}
	in = input(found(t))
	in.Found[0].Containers[0].Limits.MemoryBytes = 1 << 30
	in.Known = []Known{{Record: recordOf(func(*storev1.SandboxRecord) {}), Torn: true}}
	if got := one(t, in); got.Record.GetSpec().GetMemoryLimit() != "1073741824" || !slices.Contains(got.Defaulted, "updates") {
		t.Errorf("%v of %v", got.Defaulted, got.Record.GetSpec())
	}
}

func TestTornRecordWithAnUnreadablePrimaryIsLeftAlone(t *testing.T) {
	in := input(found(t))
	f := &in.Found[0]
	f.Unreadable, f.Containers = []dockerx.Container{f.Containers[0].Container}, nil
	in.Known = []Known{{Record: recordOf(func(*storev1.SandboxRecord) {}), Torn: true}}
	if out := Plan(in, now); len(out.Sandboxes) != 0 || len(out.Skipped) == 0 || !out.Skipped[len(out.Skipped)-1].Unreadable {
		t.Errorf("%+v", out)
	}
}

// A hardened sandbox stays hardened.
func TestTornRecordKeepsItsConfinement(t *testing.T) {
	in := input(found(t))
	want := &storev1.Confinement{Profile: "hardened", MemoryLimitBytes: 64 << 20}
	in.Known = []Known{{Record: recordOf(func(r *storev1.SandboxRecord) { r.Desired.Confinement = want }), Torn: true}}
	if got := one(t, in).Record.GetDesired().GetConfinement(); !proto.Equal(got, want) {
		t.Errorf("its confinement is %v", got)
	}
}

// A sandbox still counts for who created it: by its record, or else by its container.
func TestARebuiltRecordKeepsItsCaller(t *testing.T) {
	in := input(found(t))
	in.Known = []Known{{Record: recordOf(func(r *storev1.SandboxRecord) { r.Desired.Caller = "uid:1000" }), Torn: true}}
	if got := one(t, in).Record.GetDesired().GetCaller(); got != "uid:1000" {
		t.Errorf("by its record it is of %q", got)
	}
	in = input(found(t))
	in.Found[0].Containers[0].Labels[naming.Caller] = "tls:alice"
	if got := one(t, in).Record.GetDesired().GetCaller(); got != "tls:alice" {
		t.Errorf("by its container it is of %q", got)
	}
}
