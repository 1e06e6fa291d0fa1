package store

import (
	"errors"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// makeFailed creates a sandbox that became READY and then failed with code.
func makeFailed(t *testing.T, s *Store, id, code string) {
	t.Helper()
	_, err := s.CreateSandbox(ctx, id, "", spec(), nil)
	must(t, err)
	if code != codeCreateFailed {
		report(t, s, id, phase(agboxv1.EventType_SANDBOX_READY, ready))
	}
	ev := phase(agboxv1.EventType_SANDBOX_FAILED, failed)
	ev.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{ErrorCode: code}}
	report(t, s, id, ev)
}

// makeUnswept creates a sandbox that cleanup_ttl has deleted after a failure.
func makeUnswept(t *testing.T, s *Store, id string) {
	t.Helper()
	makeFailed(t, s, id, "CONTAINER_MISSING")
	changed, err := s.RequestCleanup(ctx, id, 1, s.moment())
	must(t, err)
	if !changed {
		t.Fatal("the failed sandbox was not deleted")
	}
	must(t, s.Report(ctx, id, Report{Generation: 2, Events: []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_DELETED, deleted)}}))
}

func TestARecoverRestartsWhatHasContainers(t *testing.T) {
	s := open(t, testOptions(t))
	for _, code := range []string{"CONTAINER_DIED", "CONTAINER_OOM", "CONTAINER_MISSING", "NETWORK_MISSING", "SANDBOX_RESUME_FAILED"} {
		makeFailed(t, s, code, code)
		if _, err := s.RequestResume(ctx, code); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("a plain resume of one with %s: %v", code, err)
		}
		changed, err := s.RequestRecover(ctx, code)
		if !changed || err != nil {
			t.Errorf("a recover of one with %s: %t, %v", code, changed, err)
		}
		sb, err := s.Sandbox(ctx, code)
		must(t, err)
		if !sb.Desired.GetRecover() || sb.State != pending || sb.Desired.GetAttempt() != storev1.Attempt_ATTEMPT_RESUME {
			t.Errorf("%s: %s, %v", code, sb.State, sb.Desired)
		}
		if changed, err = s.RequestRecover(ctx, code); changed || err != nil {
			t.Errorf("a second recover: %t, %v", changed, err)
		}
	}
	makeFailed(t, s, "create", codeCreateFailed)
	if _, err := s.RequestRecover(ctx, "create"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a recover after a failed create: %v", err)
	}
	makeFailed(t, s, "going", "CONTAINER_DIED")
	_, err := s.RequestDelete(ctx, "going", "delete_requested")
	must(t, err)
	if _, err := s.RequestRecover(ctx, "going"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a recover of one that is DELETING: %v", err)
	}
}

func TestAPlainResumeIsNoRecover(t *testing.T) {
	s := open(t, testOptions(t))
	makeFailed(t, s, "box", "CONTAINER_DIED")
	_, err := s.RequestRecover(ctx, "box")
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	_, err = s.RequestStop(ctx, "box", "stop_requested")
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	_, err = s.RequestResume(ctx, "box")
	must(t, err)
	sb, err := s.Sandbox(ctx, "box")
	must(t, err)
	if sb.Desired.GetRecover() {
		t.Error("the permission of the earlier resume is still there")
	}
}

func TestAWithdrawnVerdictRestoresTheState(t *testing.T) {
	s := open(t, testOptions(t))
	makeFailed(t, s, "box", "CONTAINER_MISSING")
	recovered := phase(agboxv1.EventType_SANDBOX_RECOVERED, ready)
	report(t, s, "box", recovered)
	sb, err := s.Sandbox(ctx, "box")
	must(t, err)
	if sb.State != ready || sb.ErrorCode != "" || sb.IdleSince.IsZero() {
		t.Errorf("%s %q, idle since %v", sb.State, sb.ErrorCode, sb.IdleSince)
	}
	err = s.Report(ctx, "box", Report{Generation: sb.Desired.GetGeneration(), Events: []*agboxv1.SandboxEvent{recovered}})
	if !errors.Is(err, sandboxstate.ErrIllegal) {
		t.Errorf("a withdrawal for a sandbox that is READY: %v", err)
	}
}

func TestUnsweptOutlivesThePurge(t *testing.T) {
	s := open(t, testOptions(t))
	makeUnswept(t, s, "lost")
	makeDeleted(t, s, "asked")
	must(t, s.PurgeSandbox(ctx, "lost"))
	for id, want := range map[string]bool{"lost": true, "asked": false, "nobody": false} {
		if got, err := s.Unswept(ctx, id); got != want || err != nil {
			t.Errorf("%s: %t, %v; want %t", id, got, err, want)
		}
	}
}

func TestTheEnginesIdentityIsKept(t *testing.T) {
	o := testOptions(t)
	s := open(t, o)
	if id, err := s.EngineIdentity(ctx); id != nil || err != nil {
		t.Fatalf("%v, %v before there is one", id, err)
	}
	want := &storev1.EngineIdentity{StorageDriver: "overlay2", DataRoot: "/var/lib/docker"}
	must(t, s.SetEngineIdentity(ctx, want))
	must(t, s.Close())
	if got, err := open(t, o).EngineIdentity(ctx); !proto.Equal(got, want) || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
