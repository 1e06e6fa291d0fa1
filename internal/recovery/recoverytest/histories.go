package recoverytest

import (
	"context"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// history is a sequence of changes that leads to a state.
type history func(s *store.Store, id string) error

var histories = map[string]history{
	"pending": func(*store.Store, string) error { return nil },
	"ready":   ready,
	"deadline": seq(ready, func(s *store.Store, id string) error {
		_, _, err := s.SetTimeout(context.Background(), id, store.Timeout{At: time.Now().Add(3 * time.Hour)})
		return err
	}),
	"execs":    seq(ready, execs),
	"pausing":  seq(ready, pause),
	"frozen":   seq(ready, pause, paused),
	"demoted":  seq(ready, pause, paused, demote),
	"resuming": seq(ready, pause, paused, resume),
	"stopping": seq(ready, stop),
	"stopped":  seq(ready, stop, stopped),
	"failed":   seq(ready, failed),
	"deleting": seq(ready, remove),
}

func seq(list ...history) history {
	return func(s *store.Store, id string) error {
		for _, h := range list {
			if err := h(s, id); err != nil {
				return err
			}
		}
		return nil
	}
}

func report(s *store.Store, id string, e *agboxv1.SandboxEvent, p *storev1.Progress) error {
	sb, err := s.Sandbox(context.Background(), id)
	if err != nil {
		return err
	}
	return s.Report(context.Background(), id, store.Report{
		Generation: sb.Desired.GetGeneration(), Events: []*agboxv1.SandboxEvent{e}, Progress: p, Timeout: 90 * time.Minute,
		EngineRun: &storev1.EngineRun{BootId: "boot", EngineStart: "engine"},
	})
}

func ready(s *store.Store, id string) error {
	return report(s, id, &agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_SANDBOX_READY, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_READY,
	}, &storev1.Progress{HooksDone: 2, PrimaryStarted: true, Released: true, Copied: true})
}

func execs(s *store.Store, id string) error {
	for _, execID := range []string{"done", "fails", "goes"} {
		req := &agboxv1.CreateExecRequest{
			SandboxId: id, ExecId: id + "-" + execID, Command: []string{execID, "x"}, Cwd: "/tmp", EnvOverrides: map[string]string{"K": "v"},
		}
		if _, err := s.CreateExec(context.Background(), req, store.Caller{}); err != nil {
			return err
		}
	}
	finished := &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FINISHED), StartedAt: 1e18, EndedAt: 1e18 + 5}
	ruined := &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FAILED), ExitCode: 3, ErrorCode: "EXEC_RUN_FAILED", ErrorMessage: "it exited with code 3"}
	if err := s.EndExec(context.Background(), id+"-done", finished); err != nil {
		return err
	}
	return s.EndExec(context.Background(), id+"-fails", ruined)
}

func pause(s *store.Store, id string) error {
	_, err := s.RequestPause(context.Background(), id, "pause_requested")
	return err
}

func paused(s *store.Store, id string) error {
	return report(s, id, &agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_SANDBOX_PAUSED, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_PAUSED,
	}, &storev1.Progress{HooksDone: 2, PrimaryStarted: true, Released: true, Copied: true, Frozen: true})
}

func demote(s *store.Store, id string) error {
	_, err := s.Demote(context.Background(), id)
	return err
}

func resume(s *store.Store, id string) error {
	_, err := s.RequestResume(context.Background(), id)
	return err
}

func stop(s *store.Store, id string) error {
	_, err := s.RequestStop(context.Background(), id, "stop_requested")
	return err
}

func stopped(s *store.Store, id string) error {
	return report(s, id, &agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_SANDBOX_STOPPED, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_STOPPED,
	}, &storev1.Progress{HooksDone: 2})
}

func failed(s *store.Store, id string) error {
	return report(s, id, &agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_SANDBOX_FAILED, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_FAILED,
		Details: &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{ErrorCode: "CONTAINER_OOM", ErrorMessage: "it wanted more"}},
	}, nil)
}

func remove(s *store.Store, id string) error {
	_, err := s.RequestDelete(context.Background(), id, "delete_requested")
	return err
}

// Lives lists histories of sandboxes; all but one end stopped.
var Lives = map[string]history{
	"stopped":         seq(ready, stop, stopped),
	"stopped-again":   seq(ready, stop, stopped, resume, ready, stop, stopped),
	"stopped-execs":   seq(ready, execs, endExecs, stop, stopped),
	"stopped-paused":  seq(ready, pause, paused, stop, stopped),
	"stopped-demoted": seq(ready, pause, paused, demote, stop, stopped),
	"running":         seq(ready, stop, stopped, resume, ready),
}

func endExecs(s *store.Store, id string) error {
	return s.EndExec(context.Background(), id+"-goes", &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_CANCELLED), EndedAt: 1e18 + 9})
}
