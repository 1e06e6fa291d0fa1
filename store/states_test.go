package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// situations lists all states, each with every intent that it can have.
var situations = []struct {
	name string
	make func(t testing.TB, s *Store, id string)
}{
	{"pending by a create", func(t testing.TB, s *Store, id string) { create(t, s, id) }},
	{"ready", makeReady},
	{"ready, to be paused", func(t testing.TB, s *Store, id string) { makeReady(t, s, id); accepted(t, s.RequestPause, id) }},
	{"ready, to be paused, demoted", func(t testing.TB, s *Store, id string) {
		makeReady(t, s, id)
		accepted(t, s.RequestPause, id)
		_, err := s.Demote(ctx, id)
		must(t, err)
	}},
	{"ready, to be stopped", func(t testing.TB, s *Store, id string) { makeReady(t, s, id); accepted(t, s.RequestStop, id) }},
	{"paused", makePaused},
	{"paused, demoted", func(t testing.TB, s *Store, id string) {
		makePaused(t, s, id)
		_, err := s.Demote(ctx, id)
		must(t, err)
	}},
	{"paused, to be stopped", func(t testing.TB, s *Store, id string) { makePaused(t, s, id); accepted(t, s.RequestStop, id) }},
	{"stopped", func(t testing.TB, s *Store, id string) {
		makeReady(t, s, id)
		accepted(t, s.RequestStop, id)
		report(t, s, id, phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	}},
	{"pending by a resume", func(t testing.TB, s *Store, id string) {
		makePaused(t, s, id)
		_, err := s.RequestResume(ctx, id)
		must(t, err)
	}},
	{"failed while paused", func(t testing.TB, s *Store, id string) {
		makePaused(t, s, id)
		report(t, s, id, failure("CONTAINER_DIED"))
	}},
	{"deleting", func(t testing.TB, s *Store, id string) { makePaused(t, s, id); accepted(t, s.RequestDelete, id) }},
	{"deleted", func(t testing.TB, s *Store, id string) { makePaused(t, s, id); deleteIt(t, s, id) }},
}

// situation returns the function that puts a sandbox into the named situation.
func situation(name string) func(t testing.TB, s *Store, id string) {
	for _, sit := range situations {
		if sit.name == name {
			return sit.make
		}
	}
	panic("no situation " + name)
}

func accepted(t testing.TB, request func(ctx context.Context, id, reason string) (bool, error), id string) {
	t.Helper()
	if changed, err := request(ctx, id, "asked"); !changed || err != nil {
		t.Fatalf("%s: %v, %v", id, changed, err)
	}
}

var requests = []struct {
	name string
	try  func(s *Store, id string) (bool, error)
}{
	{"pause", func(s *Store, id string) (bool, error) { return s.RequestPause(ctx, id, "pause_requested") }},
	{"resume", func(s *Store, id string) (bool, error) { return s.RequestResume(ctx, id) }},
	{"stop", func(s *Store, id string) (bool, error) { return s.RequestStop(ctx, id, "stop_requested") }},
	{"delete", func(s *Store, id string) (bool, error) { return s.RequestDelete(ctx, id, "delete_requested") }},
	{"timeout", func(s *Store, id string) (bool, error) {
		_, changed, err := s.SetTimeout(ctx, id, Timeout{After: time.Hour})
		return changed, err
	}},
	{"exec", func(s *Store, id string) (bool, error) {
		_, err := s.CreateExec(ctx, execRequest(id, "exec-of-"+id), Caller{})
		return err == nil, err
	}},
	{"demote", func(s *Store, id string) (bool, error) { return s.Demote(ctx, id) }},
	{"expire", func(s *Store, id string) (bool, error) { return s.RequestExpire(ctx, id, s.moment()) }},
	{"idle stop", func(s *Store, id string) (bool, error) { return s.RequestIdleStop(ctx, id, time.Second, s.moment()) }},
	{"disk stop", func(s *Store, id string) (bool, error) {
		sb, err := s.Sandbox(ctx, id)
		if err != nil {
			return false, err
		}
		return s.RequestDiskStop(ctx, id, sb.StateChangedAt, "full")
	}},
	{"pause cleanup", func(s *Store, id string) (bool, error) {
		return s.RequestPauseCleanup(ctx, id, time.Second, s.moment())
	}},
}

// The outcomes of a request other than a refusal.
const (
	ok   = "accepted"
	same = "nothing to do"
)

// TestEveryRequestInEveryState after deadline, idle_ttl and the other times have passed.
func TestEveryRequestInEveryState(t *testing.T) {
	const (
		noReady = "sandbox X is not ready"
		noStop  = "sandbox X is not stopped"
		noRun   = "sandbox X is not running"
		already = "sandbox X is already paused"
	)
	want := map[string][]string{
		//                              pause    resume  stop     delete timeout exec  demote expire idle  disk  cleanup
		"pending by a create":          {noReady, noStop, noReady, ok, ok, noReady, same, same, same, same, same},
		"ready":                        {ok, noStop, ok, ok, ok, ok, same, ok, ok, ok, same},
		"ready, to be paused":          {same, ok, ok, ok, ok, noReady, ok, same, same, same, same},
		"ready, to be paused, demoted": {same, ok, ok, ok, ok, noReady, same, same, same, same, same},
		"ready, to be stopped":         {noReady, noStop, same, ok, noRun, noReady, same, same, same, same, same},
		"paused":                       {already, ok, ok, ok, ok, noReady, ok, same, same, same, same},
		"paused, demoted":              {already, ok, ok, ok, ok, noReady, same, same, same, same, ok},
		"paused, to be stopped":        {already, noStop, same, ok, noRun, noReady, same, same, same, same, same},
		"stopped":                      {noReady, ok, noReady, ok, noRun, noReady, same, same, same, same, same},
		"pending by a resume":          {noReady, same, noReady, ok, ok, noReady, same, same, same, same, same},
		"failed while paused":          {noReady, noStop, noReady, ok, noRun, noReady, same, same, same, same, same},
		"deleting":                     {noReady, noStop, noReady, same, noRun, noReady, same, same, same, same, same},
		"deleted":                      {noReady, noStop, noReady, same, noRun, noReady, same, same, same, same, same},
	}
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	for i, sit := range situations {
		for j, req := range requests {
			id := fmt.Sprintf("box-%d-%d", i, j)
			sit.make(t, s, id)
			_, _, _ = s.SetTimeout(ctx, id, Timeout{At: c.at}) // of the sandboxes that may have one
			c.pass(time.Minute)
			before := get1(t, s, id)
			changed, err := req.try(s, id)
			if got := outcomeOf(changed, err); got != strings.ReplaceAll(want[sit.name][j], "X", id) {
				t.Errorf("%s, %s: %s", sit.name, req.name, got)
			}
			if after := get1(t, s, id); !changed && !sameSandbox(before, after) {
				t.Errorf("%s: %s changed nothing, and\n%+v is\n%+v", sit.name, req.name, before, after)
			}
		}
	}
	survives(t, s)
}

func outcomeOf(changed bool, err error) string {
	switch {
	case err != nil && !changed:
		return err.Error()
	case err != nil:
		return "changed and " + err.Error()
	case changed:
		return ok
	}
	return same
}

func sameSandbox(a, b Sandbox) bool {
	return a.State == b.State && a.StateChangedAt.Equal(b.StateChangedAt) && a.LastSequence == b.LastSequence &&
		a.IdleSince.Equal(b.IdleSince) && a.Preparing == b.Preparing && a.ErrorCode == b.ErrorCode && a.ErrorMessage == b.ErrorMessage &&
		slices.Equal(a.ActiveExecs, b.ActiveExecs) &&
		proto.Equal(a.Desired, b.Desired) && proto.Equal(a.Progress, b.Progress) && proto.Equal(a.Spec, b.Spec)
}

// survives closes the store, checks its file, and checks that every sandbox is the same in a reopened store, which it returns.
func survives(t testing.TB, s *Store) *Store {
	t.Helper()
	before, err := s.List(ctx, Filter{IncludeDeleted: true})
	must(t, err)
	must(t, s.Close())
	checkDatabase(t, s.o.Path)
	s = open(t, s.o)
	for _, was := range before {
		if is := get1(t, s, was.ID); !sameSandbox(was, is) {
			t.Errorf("%+v is after a restart\n%+v", was, is)
		}
	}
	return s
}

func TestAnUnknownSandboxHasNoLifetime(t *testing.T) {
	s := open(t, testOptions(t))
	for _, req := range requests {
		changed, err := req.try(s, "nobody")
		if got := outcomeOf(changed, err); got != "sandbox nobody was not found" || !errdefs.IsNotFound(err) {
			t.Errorf("%s: %s", req.name, got)
		}
	}
}

func TestRefusalsDistinguishPausedFromNotReady(t *testing.T) {
	s := open(t, testOptions(t))
	makePaused(t, s, "box")
	_, err := s.RequestPause(ctx, "box", "again")
	refusedFor(t, err, "SANDBOX_ALREADY_PAUSED", errdefs.ErrFailedPrecondition, "sandbox box is already paused")
	accepted(t, s.RequestStop, "box")
	_, _, err = s.SetTimeout(ctx, "box", Timeout{})
	refusedFor(t, err, "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox box is not running")
}
