package store

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// setCPU returns a change of one limit.
func setCPU(cpu float64) SpecChange {
	return func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
		if old.GetCpuLimit() == cpu {
			return old, nil, false, nil
		}
		next := proto.CloneOf(old)
		next.CpuLimit = cpu
		return next, []string{"cpu_limit"}, true, nil
	}
}

func TestAnUpdateIsOneTransaction(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makeReady(t, s, "box")
	before := get1(t, s, "box")
	c.pass(time.Minute)
	told := 0
	s.OnCommit(func(Change) { told++ })
	sb, changed, err := s.UpdateSpec(ctx, "box", 0, setCPU(2))
	if err != nil || !slices.Equal(changed, []string{"cpu_limit"}) || told != 1 {
		t.Fatalf("%v, %v, told %d times", changed, err, told)
	}
	for range 2 {
		d := sb.Desired
		if sb.Spec.GetCpuLimit() != 2 || d.GetGeneration() != 2 || !d.GetLimitsPending() || d.GetRequestedAt() != before.Desired.GetRequestedAt() ||
			d.GetRunState() != before.Desired.GetRunState() || d.GetAttempt() != before.Desired.GetAttempt() {
			t.Fatalf("%+v", sb)
		}
		if sb.State != ready || !sb.StateChangedAt.Equal(before.StateChangedAt) || !sb.IdleSince.Equal(before.IdleSince) || sb.LastSequence != 4 {
			t.Fatalf("the event disturbs the state: %+v", sb)
		}
		s = reopen(t, s)
		sb = get1(t, s, "box")
	}
	ev := allEvents(t, s, "box")[3]
	if ev.GetEventType() != agboxv1.EventType_SANDBOX_SPEC_CHANGED || ev.GetSandboxState() != 0 || !slices.Equal(ev.GetSpecChange().GetFields(), []string{"cpu_limit"}) {
		t.Fatalf("%v", ev)
	}
	if _, changed, err := s.UpdateSpec(ctx, "box", 0, setCPU(2)); len(changed) > 0 || err != nil || get1(t, s, "box").LastSequence != 4 {
		t.Fatalf("the same again: %v, %v", changed, err)
	}
	if err := s.Report(ctx, "box", Report{Generation: 1, LimitsApplied: true}); !errdefs.IsAborted(err) {
		t.Fatalf("limits of the old spec: %v", err)
	}
	must(t, s.Report(ctx, "box", Report{Generation: 2, LimitsApplied: true}))
	if d := get1(t, s, "box").Desired; d.GetLimitsPending() || d.GetGeneration() != 2 {
		t.Fatalf("%v", d)
	}
}

func TestAnUpdateThatIsRefusedWritesNothing(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	own := errors.New("no")
	refuse := func(*agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
		return nil, []string{"x"}, true, own
	}
	if _, _, err := s.UpdateSpec(ctx, "box", 0, refuse); !errors.Is(err, own) {
		t.Fatal(err)
	}
	nothing := func(*agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
		return nil, []string{"x"}, true, nil
	}
	if _, _, err := s.UpdateSpec(ctx, "box", 0, nothing); !errdefs.IsInvalidArgument(err) {
		t.Fatal(err)
	}
	if sb := get1(t, s, "box"); sb.LastSequence != 3 || sb.Desired.GetGeneration() != 1 {
		t.Fatalf("%+v", sb)
	}
	_, _, err := s.UpdateSpec(ctx, "nobody", 0, setCPU(1))
	refusedFor(t, err, "SANDBOX_NOT_FOUND", errdefs.ErrNotFound, "sandbox nobody was not found")
	_, err = s.RequestDelete(ctx, "box", "delete_requested")
	must(t, err)
	_, _, err = s.UpdateSpec(ctx, "box", 0, setCPU(1))
	refusedFor(t, err, "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox box is being deleted")
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_DELETED, deleted))
	_, _, err = s.UpdateSpec(ctx, "box", 0, setCPU(1))
	refusedFor(t, err, "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox box is being deleted")
}

// Each of many concurrent updates adds one to the value that it read: none is lost.
func TestUpdatesAtOnceAllCount(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	const n = 200
	fill(t, s, n, func(int) {
		_, _, err := s.UpdateSpec(ctx, "box", 0, func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
			old.PidsLimit++
			return old, []string{"pids_limit"}, true, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	if sb := get1(t, s, "box"); sb.Spec.GetPidsLimit() != n || sb.Desired.GetGeneration() != n+1 || sb.LastSequence != n+3 {
		t.Fatalf("%+v", sb)
	}
}

func TestProgressIsReplacedAndAResumeKeepsItsHooks(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	if p := get1(t, s, "box").Progress; p == nil || !proto.Equal(p, &storev1.Progress{}) {
		t.Fatalf("at the start: %v", p)
	}
	p := &storev1.Progress{
		HooksDone: 2, PrimaryStarted: true, Restarts: &storev1.Restarts{Count: 3},
		Services: map[string]*storev1.ServiceProgress{"db": {Mark: storev1.ServiceMark_SERVICE_MARK_FAILED, ErrorMessage: "exit \xff"}},
	}
	must(t, s.Report(ctx, "box", Report{Generation: 1, Progress: p}))
	p.HooksDone = 9 // changes only the caller's copy
	s = reopen(t, s)
	got := get1(t, s, "box")
	if got.Progress.GetHooksDone() != 2 || got.Progress.GetServices()["db"].GetErrorMessage() != "exit \uFFFD" || got.LastSequence != 3 {
		t.Fatalf("%+v", got)
	}
	same := func() { must(t, s.Report(ctx, "box", Report{Generation: 1, Progress: got.Progress})) }
	if told := toldOf(s, same); len(told) > 0 {
		t.Fatal("the same progress is written again")
	}
	must(t, s.Report(ctx, "box", Report{Generation: 1}))
	_, err := s.RequestStop(ctx, "box", "stop_requested")
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	_, err = s.RequestResume(ctx, "box")
	must(t, err)
	s = reopen(t, s)
	if p := get1(t, s, "box").Progress; !proto.Equal(p, &storev1.Progress{HooksDone: 2}) {
		t.Fatalf("after a resume: %v", p)
	}
	deleteIt(t, s, "box")
	must(t, s.PurgeSandbox(ctx, "box"))
	if n := walk(t, s)[bucketProgress]; n != 0 {
		t.Fatal("the progress outlives the purge")
	}
}

// toldOf returns the IDs passed to the hooks while fn ran.
func toldOf(s *Store, fn func()) (ids []string) {
	s.OnCommit(func(c Change) { ids = append(ids, c.SandboxID) })
	fn()
	return ids
}

func TestReportTakesOnlyEventsOfAPass(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	before := get1(t, s, "box")
	report(t, s, "box", phase(agboxv1.EventType_IMAGE_PULLING, 0))
	if sb := get1(t, s, "box"); sb.State != ready || !sb.IdleSince.Equal(before.IdleSince) || sb.LastSequence != 4 {
		t.Fatalf("%+v", sb)
	}
	for _, ev := range []*agboxv1.SandboxEvent{
		phase(agboxv1.EventType_SANDBOX_SPEC_CHANGED, 0), phase(agboxv1.EventType_EXEC_STARTED, 0),
	} {
		if err := s.Report(ctx, "box", Report{Generation: 1, Events: []*agboxv1.SandboxEvent{ev}}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v", ev, err)
		}
	}
	svc := phase(agboxv1.EventType_SANDBOX_SERVICE_FAILED, ready)
	svc.Details = &agboxv1.SandboxEvent_Service{Service: &agboxv1.ServiceEventDetails{ServiceName: "db", ErrorMessage: "\xff"}}
	report(t, s, "box", svc)
}

// An image pull during a create does not change the Preparing state.
func TestEventsWithoutAStateDoNotDisturbACreate(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	create(t, s, "box")
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_PREPARING, pending))
	before := get1(t, s, "box")
	c.pass(time.Minute)
	report(t, s, "box", phase(agboxv1.EventType_IMAGE_PULLING, 0))
	for range 2 {
		if sb := get1(t, s, "box"); !sb.Preparing || sb.State != pending || !sb.StateChangedAt.Equal(before.StateChangedAt) {
			t.Fatalf("%+v", sb)
		}
		s = reopen(t, s)
	}
}

func portSpec(port uint32, protocol string) *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{Image: "x", Ports: []*agboxv1.PortSpec{{ContainerPort: 1}, {ContainerPort: 80, HostPort: port, Protocol: protocol}}}
}

func TestAFixedHostPortHasOneLiveSandbox(t *testing.T) {
	s := open(t, testOptions(t))
	try := func(id string, spec *agboxv1.CreateSpec) error {
		_, err := s.CreateSandbox(ctx, id, "", spec, nil)
		return err
	}
	taken := func(id, field, port string, spec *agboxv1.CreateSpec) {
		t.Helper()
		err := try(id, spec)
		refusedFor(t, err, "SANDBOX_PORT_ALREADY_IN_USE", errdefs.ErrAlreadyExists, "host port "+port+" is already published by sandbox box; choose another host port or delete that sandbox")
		var r *Refusal
		if !errors.As(err, &r) || r.Metadata["sandbox_id"] != id || r.Metadata["field"] != field {
			t.Errorf("%v", r)
		}
	}
	must(t, try("box", portSpec(8080, "")))
	taken("other", "ports[1].host_port", "8080/tcp", portSpec(8080, "tcp"))
	service := &agboxv1.CreateSpec{Image: "x", OptionalServices: []*agboxv1.ServiceSpec{{Name: "a"}, {Name: "b", Ports: portSpec(8080, "").GetPorts()}}}
	taken("other", "optional_services[b].ports[1].host_port", "8080/tcp", service)
	must(t, try("udp", portSpec(8080, "udp")))
	must(t, try("free", &agboxv1.CreateSpec{Image: "x", Ports: []*agboxv1.PortSpec{{ContainerPort: 8080}}}))
	s = reopen(t, s)
	taken("other", "ports[1].host_port", "8080/tcp", portSpec(8080, "tcp"))
	report(t, s, "box", failure("SANDBOX_CREATE_FAILED"))
	must(t, try("after-failure", service))
	_, err := s.RequestDelete(ctx, "after-failure", "x")
	must(t, err)
	must(t, try("after-delete", portSpec(8080, "tcp")))
	if n := len(s.LiveIDs()); n != 5 {
		t.Fatalf("%d sandboxes", n)
	}
}

// Of several creates in one commit, one gets the port.
func TestACreateIsCheckedWithoutBeingMade(t *testing.T) {
	s := open(t, testOptions(t))
	_, err := s.CreateSandbox(ctx, "box", "name", portSpec(8080, ""), nil)
	must(t, err)
	must(t, s.CheckCreate(ctx, "next", "name", portSpec(8080, ""), Caller{}, "box"))
	refusedFor(t, s.CheckCreate(ctx, "next", "name", portSpec(0, ""), Caller{}, ""), "SANDBOX_NAME_ALREADY_EXISTS", errdefs.ErrAlreadyExists,
		"sandbox name name already exists")
	refusedFor(t, s.CheckCreate(ctx, "next", "", portSpec(8080, ""), Caller{}, "another"), "SANDBOX_PORT_ALREADY_IN_USE", errdefs.ErrAlreadyExists,
		"host port 8080/tcp is already published by sandbox name; choose another host port or delete that sandbox")
	refusedFor(t, s.CheckCreate(ctx, "box", "", portSpec(0, ""), Caller{}, ""), "SANDBOX_ID_ALREADY_EXISTS", errdefs.ErrAlreadyExists,
		"sandbox_id box already exists")
	if reserved, err := s.Reserved(ctx, "next"); err != nil || reserved {
		t.Errorf("a check reserved its ID: %v", err)
	}
}

func TestAHostPortIsTakenWithinAGroup(t *testing.T) {
	s := open(t, testOptions(t))
	errs := make([]error, 50)
	fill(t, s, len(errs), func(i int) { _, errs[i] = s.CreateSandbox(ctx, boxID(i), "", portSpec(9000, ""), nil) })
	got := 0
	for _, err := range errs {
		if err == nil {
			got++
		} else if !errdefs.IsAlreadyExists(err) {
			t.Error(err)
		}
	}
	if got != 1 {
		t.Fatalf("%d sandboxes have the port", got)
	}
}

func TestCleanupDeletesOnlyAfterItsTTL(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	for _, id := range []string{"ready", "stopped", "failed", "stopping"} {
		makeReady(t, s, id)
	}
	report(t, s, "failed", failure("CONTAINER_DIED"))
	for _, id := range []string{"stopped", "stopping"} {
		_, err := s.RequestStop(ctx, id, "stop_requested")
		must(t, err)
	}
	report(t, s, "stopped", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	try := func(ttl time.Duration) (taken string) {
		for _, id := range []string{"ready", "stopped", "failed", "stopping"} {
			changed, err := s.RequestCleanup(ctx, id, ttl, s.moment())
			must(t, err)
			if changed {
				taken += id + " "
			}
		}
		return taken
	}
	c.pass(time.Hour - time.Nanosecond)
	if got := try(time.Hour) + try(0) + try(-1); got != "" {
		t.Fatalf("too early: %s", got)
	}
	c.pass(time.Nanosecond)
	if got := try(time.Hour); got != "stopped failed " {
		t.Fatalf("got %s", got)
	}
	if got := try(time.Hour); got != "" {
		t.Fatalf("again: %s", got)
	}
	events := allEvents(t, s, "stopped")
	if ev := events[len(events)-1]; ev.GetSandboxPhase().GetReason() != "cleanup_ttl" || ev.GetSandboxState() != deleting {
		t.Fatalf("%v", ev)
	}
	if _, err := s.RequestCleanup(ctx, "nobody", 1, s.moment()); !errdefs.IsNotFound(err) {
		t.Fatal(err)
	}
}

// A selector matches a sandbox if its pairs are a subset of the sandbox's labels.
func TestSelectorsMatchWhatTheyArePartOf(t *testing.T) {
	words := rapid.SampledFrom([]string{"", "a", "b", "A", "a b", strings.Repeat("x", 63)})
	labels := rapid.MapOfN(words, words, 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		have := labels.Draw(t, "labels")
		sb := &Sandbox{Spec: &agboxv1.CreateSpec{Labels: have}}
		part := map[string]string{}
		for k, v := range have {
			if rapid.Bool().Draw(t, "taken") {
				part[k] = v
			}
		}
		if !hasLabels(sb.Spec.GetLabels(), part) || !hasLabels(sb.Spec.GetLabels(), nil) {
			t.Fatalf("%v does not match its part %v", have, part)
		}
		selector := labels.Draw(t, "selector")
		want := true
		for k, v := range selector {
			got, ok := have[k]
			want = want && ok && got == v
		}
		if hasLabels(sb.Spec.GetLabels(), selector) != want {
			t.Fatalf("%v matches %v: %v", have, selector, !want)
		}
		if other := (&Sandbox{Spec: &agboxv1.CreateSpec{Labels: selector}}); hasLabels(sb.Spec.GetLabels(), selector) && hasLabels(other.Spec.GetLabels(), have) && !maps.Equal(have, selector) {
			t.Fatalf("%v and %v are part of each other", have, selector)
		}
	})
}
