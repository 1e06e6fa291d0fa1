package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

const paused = agboxv1.SandboxState_SANDBOX_STATE_PAUSED

func (f *fixture) pause(id string) error {
	_, err := f.PauseSandbox(f.t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id})
	return err
}

func (f *fixture) resume(id string) error {
	_, err := f.ResumeSandbox(f.t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id})
	return err
}

func (f *fixture) stop(id string) error {
	_, err := f.StopSandbox(f.t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id})
	return err
}

// paused makes a sandbox that is PAUSED.
func (f *fixture) paused(id string) {
	f.t.Helper()
	f.create(id, ready)
	f.must(f.pause(id))
	f.report(id, paused)
}

func (f *fixture) after(id string, d time.Duration, onlyExtend bool) (*agboxv1.SetSandboxTimeoutResponse, error) {
	return f.SetSandboxTimeout(f.t.Context(), &agboxv1.SetSandboxTimeoutRequest{
		SandboxId: id, When: &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: durationpb.New(d)}, OnlyExtend: onlyExtend,
	})
}

func (f *fixture) at(id string, at time.Time) (*agboxv1.SetSandboxTimeoutResponse, error) {
	return f.SetSandboxTimeout(f.t.Context(), &agboxv1.SetSandboxTimeoutRequest{
		SandboxId: id, When: &agboxv1.SetSandboxTimeoutRequest_DeadlineAt{DeadlineAt: timestamppb.New(at)},
	})
}

// TestLifetimeErrorTable has the rows of pause and timeout, and what they change in those of others.
func TestLifetimeErrorTable(t *testing.T) {
	f := newFixture(t)
	for id, state := range map[string]agboxv1.SandboxState{
		"pending": pending, "ready": ready, "failed": failed, "stopped": stopped, "deleting": deleting, "deleted": deleted,
	} {
		f.create(id, state)
	}
	for _, id := range []string{"paused", "stop-paused", "resumed"} {
		f.paused(id)
	}
	f.must(f.stop("stop-paused"))
	f.must(f.resume("resumed"))
	f.create("stopping", ready)
	f.must(f.stop("stopping"))
	set := func(id string) error { _, err := f.after(id, time.Hour, false); return err }
	exec := func(id string) error {
		_, err := f.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
		return err
	}
	const state, invalid = "SANDBOX_INVALID_STATE", "INVALID_SPEC"
	for _, row := range []struct {
		err             error
		id              string
		reason, message string // empty: no error
	}{
		{f.pause("pending"), "pending", state, "sandbox pending is not ready"},
		{f.pause("failed"), "failed", state, "sandbox failed is not ready"},
		{f.pause("stopped"), "stopped", state, "sandbox stopped is not ready"},
		{f.pause("stopping"), "stopping", state, "sandbox stopping is not ready"},
		{f.pause("deleting"), "deleting", state, "sandbox deleting is not ready"},
		{f.pause("deleted"), "deleted", state, "sandbox deleted is not ready"},
		{f.pause("resumed"), "resumed", state, "sandbox resumed is not ready"},
		{f.pause("paused"), "paused", "SANDBOX_ALREADY_PAUSED", "sandbox paused is already paused"},
		{f.pause("nope"), "nope", "SANDBOX_NOT_FOUND", "sandbox nope was not found"},
		{f.pause(""), "", invalid, "sandbox_id is required"},
		{exec("paused"), "paused", "SANDBOX_NOT_READY", "sandbox paused is not ready"},
		{exec("stop-paused"), "stop-paused", "SANDBOX_NOT_READY", "sandbox stop-paused is not ready"},
		{f.resume("stop-paused"), "stop-paused", state, "sandbox stop-paused is not stopped"},
		{f.stop("stop-paused"), "", "", ""},
		{f.resume("resumed"), "", "", ""},
		{set("failed"), "failed", state, "sandbox failed is not running"},
		{set("stopped"), "stopped", state, "sandbox stopped is not running"},
		{set("stopping"), "stopping", state, "sandbox stopping is not running"},
		{set("stop-paused"), "stop-paused", state, "sandbox stop-paused is not running"},
		{set("deleting"), "deleting", state, "sandbox deleting is not running"},
		{set("deleted"), "deleted", state, "sandbox deleted is not running"},
		{set("nope"), "nope", "SANDBOX_NOT_FOUND", "sandbox nope was not found"},
		{set(""), "", invalid, "sandbox_id is required"},
		{set("pending"), "", "", ""},
		{set("ready"), "", "", ""},
		{set("paused"), "", "", ""},
		{set("resumed"), "", "", ""},
		{func() error { _, err := f.at("ready", time.Now().Add(-time.Second)); return err }(), "", invalid, "deadline_at must not be in the past"},
		{func() error { _, err := f.after("ready", -1, false); return err }(), "", invalid, "timeout must be 0 (never) or a duration from 1s to 10 years"},
		{func() error {
			_, err := f.SetSandboxTimeout(t.Context(), &agboxv1.SetSandboxTimeoutRequest{SandboxId: "ready"})
			return err
		}(), "", invalid, "timeout or deadline_at is required"},
	} {
		if row.reason == "" {
			f.must(row.err)
			continue
		}
		code := map[string]codes.Code{"SANDBOX_NOT_FOUND": codes.NotFound, invalid: codes.InvalidArgument}[row.reason]
		if code == codes.OK {
			code = codes.FailedPrecondition
		}
		refused(t, row.err, code, row.reason, row.message, map[string]string{"sandbox_id": row.id})
	}
}

func TestASecondPauseLeavesNoEvent(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	f.must(f.pause("abcd"))
	before := f.get("abcd")
	if before.GetState() != ready || before.GetDesiredState() != "paused" {
		t.Errorf("under way: %v", before)
	}
	f.must(f.pause("abcd"))
	if after := f.get("abcd"); after.GetLastEventSequence() != before.GetLastEventSequence() {
		t.Errorf("it left event %d", after.GetLastEventSequence())
	}
	f.report("abcd", paused)
	if sb := f.get("abcd"); sb.GetState() != paused || sb.GetDesiredState() != "" {
		t.Errorf("paused: %v", sb)
	}
	f.must(f.stop("abcd"))
	if sb := f.get("abcd"); sb.GetState() != paused || sb.GetDesiredState() != "stopped" {
		t.Errorf("to be stopped: %v", sb)
	}
}

func TestNoPauseOnAnEngineThatCannotFreeze(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) { d.FreezeRefusal = func() string { return "it has no freezer" } })
	f.create("abcd", ready)
	refused(t, f.pause("abcd"), codes.FailedPrecondition, "ENGINE_CANNOT_FREEZE", "sandbox abcd can't be frozen: it has no freezer. Stop it instead: its files stay, its processes end",
		map[string]string{"sandbox_id": "abcd"})
	if sb := f.get("abcd"); sb.GetState() != ready || sb.GetDesiredState() != "" {
		t.Errorf("afterwards: %v", sb)
	}
	f.must(f.stop("abcd"))
	refused(t, f.pause("abcd"), codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "sandbox abcd is not ready", map[string]string{"sandbox_id": "abcd"})
}

func TestSetTimeoutSaysWhatHolds(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	resp, err := f.at("abcd", at)
	if f.must(err); !resp.GetChanged() || !resp.GetDeadlineAt().AsTime().Equal(at) {
		t.Errorf("set: %v", resp)
	}
	resp, err = f.at("abcd", at)
	if f.must(err); resp.GetChanged() || !resp.GetDeadlineAt().AsTime().Equal(at) {
		t.Errorf("the same again: %v", resp)
	}
	resp, err = f.after("abcd", time.Minute, true)
	if f.must(err); resp.GetChanged() || !resp.GetDeadlineAt().AsTime().Equal(at) {
		t.Errorf("only_extend shortened it: %v", resp)
	}
	if sb := f.get("abcd"); !sb.GetDeadlineAt().AsTime().Equal(at) || sb.GetOnTimeout() != "stop" || sb.GetTimeout() != nil {
		t.Errorf("handle: %v", sb)
	}
	resp, err = f.after("abcd", 0, false)
	if f.must(err); !resp.GetChanged() || resp.GetDeadlineAt() != nil {
		t.Errorf("never: %v", resp)
	}
	if sb := f.get("abcd"); sb.GetDeadlineAt() != nil || sb.GetOnTimeout() != "" {
		t.Errorf("handle: %v", sb)
	}
}

// What has not begun is no "never": the spec's timeout, or the daemon's, comes with READY.
func TestExtendingALifetimeThatHasNotBegun(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) { d.DefaultTimeout = func() time.Duration { return time.Hour } })
	for _, tc := range []struct {
		id      string
		own     *durationpb.Duration
		after   time.Duration
		changed bool
	}{
		{"default-longer", nil, 2 * time.Hour, true},
		{"default-shorter", nil, time.Minute, false},
		{"owns-longer", durationpb.New(time.Minute), 2 * time.Minute, true},
		{"owns-shorter", durationpb.New(time.Hour), time.Minute, false},
		{"never", durationpb.New(0), time.Hour, false},
		{"to-never", durationpb.New(time.Hour), 0, true},
	} {
		_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: tc.id, CreateSpec: &agboxv1.CreateSpec{Image: "x", Timeout: tc.own}})
		f.must(err)
		resp, err := f.after(tc.id, tc.after, true)
		if f.must(err); resp.GetChanged() != tc.changed || (resp.GetDeadlineAt() != nil) != (tc.changed && tc.after > 0) {
			t.Errorf("%s: %v", tc.id, resp)
		}
	}
	_, err := f.after("nobody", time.Hour, true)
	refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "sandbox nobody was not found", map[string]string{"sandbox_id": "nobody"})
}

func TestHandlesShowTheLifetime(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) { d.DefaultTimeout = func() time.Duration { return time.Hour } })
	create := func(id string, spec *agboxv1.CreateSpec) *agboxv1.SandboxHandle {
		spec.Image = "x"
		_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: spec})
		f.must(err)
		return f.get(id)
	}
	for _, tc := range []struct {
		id       string
		spec     *agboxv1.CreateSpec
		timeout  time.Duration // 0: absent
		onEnding string
	}{
		{"default", &agboxv1.CreateSpec{}, time.Hour, "stop"},
		{"never", &agboxv1.CreateSpec{Timeout: durationpb.New(0), OnTimeout: "delete"}, 0, ""},
		{"owns", &agboxv1.CreateSpec{Timeout: durationpb.New(time.Minute), OnTimeout: "pause"}, time.Minute, "pause"},
	} {
		h := create(tc.id, tc.spec)
		if h.GetTimeout().AsDuration() != tc.timeout || (h.GetTimeout() == nil) != (tc.timeout == 0) || h.GetOnTimeout() != tc.onEnding || h.GetDeadlineAt() != nil {
			t.Errorf("%s: %v", tc.id, h)
		}
	}
	f.report("owns", ready)
	if h := f.get("owns"); h.GetDeadlineAt() != nil {
		t.Errorf("no timeout was reported: %v", h)
	}
	_, err := f.after("owns", time.Hour, false)
	f.must(err)
	end := f.get("owns").GetDeadlineAt().AsTime()
	f.must(f.pause("owns"))
	f.report("owns", paused)
	if h := f.get("owns"); !h.GetDeadlineAt().AsTime().Equal(end) || h.GetDemotedAt() != nil {
		t.Errorf("paused: %v", h)
	}
	_, err = f.store.Demote(t.Context(), "owns")
	f.must(err)
	if h := f.get("owns"); h.GetDemotedAt() == nil || h.GetState() != paused {
		t.Errorf("demoted: %v", h)
	}
	f.must(f.stop("owns"))
	f.report("owns", stopped)
	if h := f.get("owns"); h.GetDeadlineAt() != nil || h.GetDemotedAt() != nil || h.GetTimeout().AsDuration() != time.Minute {
		t.Errorf("stopped: %v", h)
	}
}

func TestATimeoutThatChangesCountsFromTheChange(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) { d.DefaultTimeout = func() time.Duration { return 2 * time.Hour } })
	f.create("abcd", ready)
	labels := map[string]string{"id": "abcd"}
	for _, tc := range []struct {
		name string
		spec *agboxv1.CreateSpec
		want time.Duration // 0: never
	}{
		{"its own", &agboxv1.CreateSpec{Image: "x", Labels: labels, Timeout: durationpb.New(time.Hour)}, time.Hour},
		{"the default again", &agboxv1.CreateSpec{Image: "x", Labels: labels}, 2 * time.Hour},
		{"never", &agboxv1.CreateSpec{Image: "x", Labels: labels, Timeout: durationpb.New(0)}, 0},
	} {
		before := time.Now()
		resp, err := f.update("abcd", tc.spec, false)
		f.must(err)
		at := resp.GetSandbox().GetDeadlineAt()
		if (at == nil) != (tc.want == 0) || at != nil && (at.AsTime().Before(before.Add(tc.want)) || at.AsTime().After(time.Now().Add(tc.want))) {
			t.Errorf("%s: %v", tc.name, resp.GetSandbox())
		}
	}
}

// overtaken is a store in which another client comes first whenever a resume is asked for.
type overtaken struct {
	*store.Store
	first func(id string)
}

func (s overtaken) RequestResume(ctx context.Context, id string) (bool, error) {
	s.first(id)
	return s.Store.RequestResume(ctx, id)
}

func TestAResumeThatIsOvertaken(t *testing.T) {
	var f *fixture
	var first func(id string)
	f = newFixture(t, func(d *server.Deps) {
		d.Store = overtaken{d.Store.(*store.Store), func(id string) { first(id) }}
	})
	other := func(id string) {
		_, err := f.store.RequestResume(t.Context(), id)
		f.must(err)
	}
	finished := func(id string) { other(id); f.report(id, ready) }
	for _, tc := range []struct {
		name  string
		make  func(id string)
		first func(id string)
		ok    bool
	}{
		{"by a resume under way, when it was stopped", func(id string) { f.create(id, stopped) }, other, true},
		{"by a resume that is done, when it was stopped", func(id string) { f.create(id, stopped) }, finished, true},
		{"by a resume that is done, when it was paused", f.paused, finished, true},
		{"by a resume that is done, when its pause was under way", func(id string) { f.create(id, ready); f.must(f.pause(id)) }, finished, true},
		{"by the end of the resume that was under way", func(id string) { f.create(id, stopped); other(id) }, func(id string) { f.report(id, ready) }, true},
		{"by the failure of that resume", func(id string) { f.create(id, stopped); other(id) }, func(id string) { f.report(id, failed) }, false},
		{"by a resume and a stop", func(id string) { f.create(id, stopped) }, func(id string) { finished(id); f.must(f.stop(id)) }, false},
		{"by a delete", f.paused, func(id string) {
			_, err := f.store.RequestDelete(t.Context(), id, "delete_requested")
			f.must(err)
		}, false},
		{"by no client, and it ran all the time", func(id string) { f.create(id, ready) }, func(string) {}, false},
		{"by the end of its create", func(id string) { f.create(id, pending) }, func(id string) { f.report(id, ready) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f.t = t
			id := uuid.NewString()
			tc.make(id)
			first = tc.first
			err := f.resume(id)
			if tc.ok {
				f.must(err)
				return
			}
			refused(t, err, codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "sandbox "+id+" is not stopped", nil)
		})
	}
}
