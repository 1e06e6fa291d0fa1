package store

import (
	"slices"
	"testing"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func createNamed(t *testing.T, s *Store, id, name string) {
	t.Helper()
	if _, err := s.CreateSandbox(t.Context(), id, name, spec(), nil); err != nil {
		t.Fatal(err)
	}
}

func requestDelete(t *testing.T, s *Store, id string) {
	t.Helper()
	if _, err := s.RequestDelete(t.Context(), id, "delete_requested"); err != nil {
		t.Fatal(err)
	}
}

func TestADeleteWithVolumesIsRecorded(t *testing.T) {
	s := open(t, testOptions(t))
	createNamed(t, s, "box-1", "web")
	with := func(want bool) {
		t.Helper()
		if changed, err := s.RequestDeleteWithVolumes(t.Context(), "box-1", "delete_requested", false); changed != want || err != nil {
			t.Errorf("changed %t, %v, want %t", changed, err, want)
		}
	}
	requestDelete(t, s, "box-1")
	before := get1(t, s, "box-1").Desired
	with(true) // a later request adds it
	after := get1(t, s, "box-1").Desired
	if before.GetRemoveVolumes() || !after.GetRemoveVolumes() || after.GetReason() != before.GetReason() {
		t.Errorf("before %v, after %v", before, after)
	}
	with(false)
	// A pass that was under way for the first request may not record DELETED: the volumes are still there.
	done := phase(agboxv1.EventType_SANDBOX_DELETED, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
	if err := s.Report(t.Context(), "box-1", Report{Generation: before.GetGeneration(), Events: []*agboxv1.SandboxEvent{done}}); !errdefs.IsAborted(err) {
		t.Errorf("the report of the first request: %v", err)
	}
	s = reopen(t, s)
	if !get1(t, s, "box-1").Desired.GetRemoveVolumes() {
		t.Error("the request is lost")
	}
	report(t, s, "box-1", done)
	with(false)
}

func TestADeleteWithVolumesNeedsAName(t *testing.T) {
	s := open(t, testOptions(t))
	create(t, s, "box-1")
	if changed, err := s.RequestDeleteWithVolumes(t.Context(), "box-1", "delete_requested", false); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if d := get1(t, s, "box-1").Desired; d.GetRemoveVolumes() {
		t.Errorf("a sandbox without a name has volumes: %v", d)
	}
}

func TestNamesakesAreTheLiveSandboxesOfAName(t *testing.T) {
	s := open(t, testOptions(t))
	createNamed(t, s, "box-b", "web")
	createNamed(t, s, "box-x", "other")
	requestDelete(t, s, "box-b")
	createNamed(t, s, "box-a", "web")
	if got := s.Namesakes("web", ""); !slices.Equal(got, []string{"box-a", "box-b"}) {
		t.Error(got)
	}
	if got := s.Namesakes("web", "box-a"); !slices.Equal(got, []string{"box-b"}) {
		t.Error(got)
	}
	report(t, s, "box-b", phase(agboxv1.EventType_SANDBOX_DELETED, agboxv1.SandboxState_SANDBOX_STATE_DELETED))
	if got := s.Namesakes("web", "box-a"); got != nil {
		t.Error(got)
	}
}
