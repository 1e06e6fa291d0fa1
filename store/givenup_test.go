package store

import (
	"testing"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// wantGivenUp checks which sandboxes have a recorded confirmation.
func wantGivenUp(t *testing.T, s *Store, want ...string) {
	t.Helper()
	got, err := s.GivenUp(ctx)
	must(t, err)
	if len(got) != len(want) {
		t.Errorf("on record is %v, want %v", got, want)
	}
	for _, id := range want {
		if got[id] == nil {
			t.Errorf("nothing is on record of %s", id)
		}
	}
}

func TestAConfirmationIsKeptUntilItIsUsedOrForgotten(t *testing.T) {
	o := testOptions(t)
	s := open(t, o)
	wantGivenUp(t, s)
	confirmed := map[string]*storev1.GivenUp{"no-such-sandbox": {}}
	for _, id := range []string{"judged", "seen", "deleted", "waits", "late"} {
		makeReady(t, s, id)
		confirmed[id] = &storev1.GivenUp{PrimaryId: "c-" + id, EngineRun: &storev1.EngineRun{BootId: "b", EngineStart: "1"}}
	}
	missing := func(id string) {
		t.Helper()
		must(t, s.Report(ctx, id, Report{
			Generation: 1, Progress: &storev1.Progress{Missing: true},
			Events: []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_FAILED, failed)},
		}))
	}
	missing("late")
	must(t, s.GiveUp(ctx, confirmed))
	want := confirmed["waits"]
	confirmed["waits"] = nil // the store has a copy
	must(t, s.Close())

	s = open(t, o)
	wantGivenUp(t, s, "judged", "seen", "deleted", "waits")
	if got, err := s.GivenUp(ctx); err != nil || !proto.Equal(got["waits"], want) {
		t.Errorf("it is %v, %v, and was %v", got["waits"], err, want)
	}
	missing("judged")
	must(t, s.ForgetGivenUp(ctx, "seen"))
	must(t, s.ForgetGivenUp(ctx, "seen"))
	_, err := s.RequestDelete(ctx, "deleted", "delete_requested")
	must(t, err)
	report(t, s, "deleted", phase(agboxv1.EventType_SANDBOX_DELETED, deleted))
	wantGivenUp(t, s, "waits")
	must(t, s.Close())
	s = open(t, o)
	wantGivenUp(t, s, "waits")
	must(t, s.Close())
	checkDatabase(t, o.Path)
}
