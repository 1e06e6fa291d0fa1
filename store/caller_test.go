package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func createBy(s *Store, id string, by Caller) error {
	_, err := s.CreateSandbox(ctx, id, "", spec(), &Resolved{Caller: by})
	return err
}

func execBy(s *Store, id, execID string, by Caller) error {
	_, err := s.CreateExec(ctx, execRequest(id, execID), by)
	return err
}

// atLimit says that err names the limit, what the caller has and the way out.
func atLimit(t *testing.T, err error, key string, used, limit int) {
	t.Helper()
	r, ok := errors.AsType[*Refusal](err)
	if !ok || !errdefs.IsResourceExhausted(err) || r.Reason != "CALLER_LIMIT" || r.Metadata["limit"] != key ||
		r.Metadata["used"] != fmt.Sprint(used) || r.Metadata["limit_value"] != fmt.Sprint(limit) ||
		!strings.Contains(r.Message, fmt.Sprintf("has %d of at most %d ", used, limit)) || !strings.HasSuffix(r.Message, "raise "+key) {
		t.Errorf("got %+v", err)
	}
}

// Creates at the limit race: no more are accepted than there is room for, in whatever groups they are committed.
func TestConcurrentCreatesOfACallerStopAtTheLimit(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	sandboxes, execs := Caller{Name: "uid:1", Limit: 3}, Caller{Name: "uid:1", Limit: 5}
	var boxes, runs atomic.Int32
	var wg sync.WaitGroup
	accept := func(err error, n *atomic.Int32, key string, limit int) {
		if err == nil {
			n.Add(1)
			return
		}
		atLimit(t, err, key, limit, limit)
	}
	for i := range 40 {
		wg.Go(func() { accept(createBy(s, boxID(i), sandboxes), &boxes, "limits.sandboxes_per_caller", 3) })
		wg.Go(func() {
			accept(execBy(s, "box", fmt.Sprintf("exec-%d", i), execs), &runs, "limits.execs_per_caller", 5)
		})
	}
	wg.Wait()
	if boxes.Load() != 3 || runs.Load() != 5 {
		t.Errorf("%d sandboxes and %d execs were accepted", boxes.Load(), runs.Load())
	}
	must(t, createBy(s, "other", Caller{Name: "uid:2", Limit: 1}))
	must(t, createBy(s, "unknown", Caller{Limit: 1}))
	must(t, createBy(s, "unlimited", Caller{Name: "uid:1"}))
}

func TestASandboxCountsUntilItIsDeletedAndAnExecUntilItEnds(t *testing.T) {
	o := testOptions(t)
	s := open(t, o)
	one := Caller{Name: "uid:1", Limit: 1}
	must(t, createBy(s, "box", one))
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_PREPARING, pending))
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	must(t, execBy(s, "box", "exec-1", one))
	atLimit(t, execBy(s, "box", "exec-2", one), "limits.execs_per_caller", 1, 1)
	if err := createBy(s, "box", one); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a repeated create at the limit: %v", err)
	}

	s = reopen(t, s)
	atLimit(t, execBy(s, "box", "exec-2", one), "limits.execs_per_caller", 1, 1)
	atLimit(t, createBy(s, "box-2", one), "limits.sandboxes_per_caller", 1, 1)
	endExec(t, s, "exec-1")
	must(t, execBy(s, "box", "exec-2", one))
	endExec(t, s, "exec-2")

	_, err := s.RequestDelete(ctx, "box", "delete_requested")
	must(t, err)
	atLimit(t, createBy(s, "box-2", one), "limits.sandboxes_per_caller", 1, 1)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_DELETED, deleted))
	must(t, createBy(s, "box-2", one))
	atLimit(t, s.CheckCreate(ctx, "box-3", "", spec(), one, ""), "limits.sandboxes_per_caller", 1, 1)
	must(t, s.CheckCreate(ctx, "box-3", "", spec(), one, "box-2"))
}

func TestASandboxIsPendingUntilItIsReadyOrFails(t *testing.T) {
	s := open(t, testOptions(t))
	one := Caller{Name: "uid:1", PendingLimit: 1}
	must(t, createBy(s, "box", one))
	atLimit(t, createBy(s, "box-2", one), "limits.pending_per_caller", 1, 1)
	s = reopen(t, s)
	atLimit(t, createBy(s, "box-2", one), "limits.pending_per_caller", 1, 1)
	must(t, s.CheckCreate(ctx, "box-2", "", spec(), one, "box"))
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_PREPARING, pending))
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	must(t, createBy(s, "box-2", one))
	report(t, s, "box-2", phase(agboxv1.EventType_SANDBOX_FAILED, failed))
	must(t, createBy(s, "box-3", one))
	deleteIt(t, s, "box-3")
	must(t, createBy(s, "box-4", one))
}

func TestASandboxOfAGatewayCountsForTheOwnerOfTheKey(t *testing.T) {
	s := open(t, testOptions(t))
	gateway, other := Caller{Name: "uid:0", Gateway: true, Limit: 1}, Caller{Name: "uid:1", Limit: 1}
	of := func(id, owner string, by Caller) error {
		one := spec()
		one.Gateway = &agboxv1.GatewaySpec{Owner: owner}
		_, err := s.CreateSandbox(ctx, id, "", one, &Resolved{Caller: by})
		return err
	}
	must(t, of("a", "alice", gateway))
	must(t, of("b", "bob", gateway))
	atLimit(t, of("c", "alice", gateway), "limits.sandboxes_per_caller", 1, 1)
	must(t, of("d", "carol", other)) // a client that is no gateway counts for itself only
	atLimit(t, of("e", "dave", other), "limits.sandboxes_per_caller", 1, 1)

	for _, id := range []string{"a", "d"} {
		report(t, s, id, phase(agboxv1.EventType_SANDBOX_PREPARING, pending))
		report(t, s, id, phase(agboxv1.EventType_SANDBOX_READY, ready))
	}
	must(t, execBy(s, "a", "exec-1", gateway))
	atLimit(t, execBy(s, "a", "exec-2", gateway), "limits.execs_per_caller", 1, 1)
	must(t, execBy(s, "d", "exec-3", gateway)) // for uid:0: the sandbox is uid:1's
	must(t, execBy(s, "a", "exec-4", other))
}

func TestARebuiltSandboxCountsForItsCaller(t *testing.T) {
	one := Caller{Name: "tls:alice", Limit: 1}
	s := lost(t, newClock(), func(s *Store) {
		must(t, createBy(s, "box", one))
		report(t, s, "box", phase(agboxv1.EventType_SANDBOX_PREPARING, pending))
		report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
		must(t, execBy(s, "box", "exec-1", one))
	})
	atLimit(t, createBy(s, "box-2", one), "limits.sandboxes_per_caller", 1, 1)
	atLimit(t, execBy(s, "box", "exec-2", one), "limits.execs_per_caller", 1, 1)
}
