package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// driver plays the controller: it converges records without an engine and runs execs as processes of this host, which
// outlive the daemon. Images named "stuck" stay PENDING, "broken" ones fail.
type driver struct {
	logs string

	mu      sync.Mutex
	store   *store.Store // nil while the daemon is down
	keys    []key
	wake    chan struct{}
	running map[string]*exec.Cmd
	ends    map[string]*storev1.ExecEnd // ended, perhaps not recorded yet
}

type key struct{ sandbox, exec string }

func newDriver(logs string) *driver {
	return &driver{logs: logs, wake: make(chan struct{}, 1), running: map[string]*exec.Cmd{}, ends: map[string]*storev1.ExecEnd{}}
}

func (d *driver) logPaths(sandboxID, execID string) (stdout, stderr string) {
	base := filepath.Join(d.logs, sandboxID, execID)
	return base + ".stdout.log", base + ".stderr.log"
}

func (d *driver) add(sandboxID, execID string) {
	d.mu.Lock()
	d.keys = append(d.keys, key{sandboxID, execID})
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run converges until ctx ends. It begins with everything there is, as after a restart.
func (d *driver) run(ctx context.Context, t testing.TB, s *store.Store) {
	d.mu.Lock()
	d.store = s
	d.mu.Unlock()
	for _, id := range s.LiveIDs() {
		d.add(id, "")
	}
	for _, id := range s.ActiveExecs("") {
		d.add("", id)
	}
	for {
		for _, k := range d.take() {
			if err := d.converge(ctx, s, k); err != nil && ctx.Err() == nil && !errdefs.IsAborted(err) && !errdefs.IsNotFound(err) {
				t.Errorf("converge %v: %v", k, err)
			}
		}
		select {
		case <-ctx.Done():
			d.mu.Lock()
			d.store = nil
			d.mu.Unlock()
			return
		case <-d.wake:
		}
	}
}

func (d *driver) take() []key {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := d.keys
	d.keys = nil
	return keys
}

func (d *driver) converge(ctx context.Context, s *store.Store, k key) error {
	if k.exec != "" {
		return d.convergeExec(ctx, s, k.exec)
	}
	sb, err := s.Sandbox(ctx, k.sandbox)
	if err != nil {
		return err
	}
	wanted, state := sb.Desired.GetRunState(), sb.State
	switch {
	case wanted == storev1.RunState_RUN_STATE_RUN && state == agboxv1.SandboxState_SANDBOX_STATE_PENDING:
		return d.start(ctx, s, sb)
	case wanted == storev1.RunState_RUN_STATE_STOP && state == agboxv1.SandboxState_SANDBOX_STATE_READY:
		return d.end(ctx, s, sb, agboxv1.EventType_SANDBOX_STOPPED, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
	case wanted == storev1.RunState_RUN_STATE_DELETE && state == agboxv1.SandboxState_SANDBOX_STATE_DELETING:
		if err := d.end(ctx, s, sb, agboxv1.EventType_SANDBOX_DELETED, agboxv1.SandboxState_SANDBOX_STATE_DELETED); err != nil {
			return err
		}
		return os.RemoveAll(filepath.Join(d.logs, sb.ID))
	}
	return nil
}

func (d *driver) start(ctx context.Context, s *store.Store, sb store.Sandbox) error {
	pending, ready := agboxv1.SandboxState_SANDBOX_STATE_PENDING, agboxv1.SandboxState_SANDBOX_STATE_READY
	var events []*agboxv1.SandboxEvent
	if sb.Desired.GetAttempt() == storev1.Attempt_ATTEMPT_CREATE && !sb.Preparing {
		events = append(events, phase(agboxv1.EventType_SANDBOX_PREPARING, pending, &agboxv1.SandboxPhaseDetails{Phase: "materialize"}))
	}
	switch {
	case strings.HasPrefix(sb.Spec.GetImage(), "stuck"):
	case strings.HasPrefix(sb.Spec.GetImage(), "broken"):
		events = append(events, phase(agboxv1.EventType_SANDBOX_FAILED, agboxv1.SandboxState_SANDBOX_STATE_FAILED,
			&agboxv1.SandboxPhaseDetails{ErrorCode: "SANDBOX_CREATE_FAILED", ErrorMessage: "no such image: " + sb.Spec.GetImage()}))
	default:
		if err := os.MkdirAll(filepath.Join(d.logs, sb.ID), 0o700); err != nil {
			return err
		}
		events = append(events, phase(agboxv1.EventType_SANDBOX_READY, ready, nil))
	}
	if len(events) == 0 {
		return nil
	}
	return s.Report(ctx, sb.ID, store.Report{Generation: sb.Desired.GetGeneration(), Events: events})
}

func phase(kind agboxv1.EventType, state agboxv1.SandboxState, details *agboxv1.SandboxPhaseDetails) *agboxv1.SandboxEvent {
	e := &agboxv1.SandboxEvent{EventType: kind, SandboxState: state}
	if details != nil {
		e.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: details}
	}
	return e
}

// end cancels the execs and reports once they are gone; their ends come back here by a commit.
func (d *driver) end(ctx context.Context, s *store.Store, sb store.Sandbox, kind agboxv1.EventType, state agboxv1.SandboxState) error {
	if len(sb.ActiveExecs) > 0 {
		for _, id := range sb.ActiveExecs {
			d.kill(id)
		}
		return nil
	}
	e := phase(kind, state, &agboxv1.SandboxPhaseDetails{Reason: sb.Desired.GetReason()})
	return s.Report(ctx, sb.ID, store.Report{Generation: sb.Desired.GetGeneration(), Events: []*agboxv1.SandboxEvent{e}})
}

func (d *driver) convergeExec(ctx context.Context, s *store.Store, id string) error {
	e, err := s.Exec(ctx, id)
	if err != nil || e.End != nil {
		return err
	}
	d.mu.Lock()
	_, runs := d.running[id]
	end := d.ends[id]
	d.mu.Unlock()
	switch {
	case end != nil:
		if err := s.EndExec(ctx, id, end); err != nil {
			return err
		}
		d.add(e.SandboxID, "")
	case runs && e.Desired.GetCancelRequestedAt() != 0:
		d.kill(id)
	case !runs:
		return d.spawn(e)
	}
	return nil
}

func (d *driver) spawn(e store.Exec) error {
	outPath, errPath := d.logPaths(e.SandboxID, e.ID)
	stdout, err1 := os.Create(outPath)
	stderr, err2 := os.Create(errPath)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	cmd := exec.Command(e.Request.GetCommand()[0], e.Request.GetCommand()[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = e.Request.GetCwd(), stdout, stderr
	cmd.Env = os.Environ()
	for k, v := range e.Request.GetEnvOverrides() {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started := time.Now()
	if err := cmd.Start(); err != nil {
		d.ended(e.ID, &storev1.ExecEnd{
			State: int32(agboxv1.ExecState_EXEC_STATE_FAILED), ErrorCode: "EXEC_START_FAILED", ErrorMessage: err.Error(),
		})
		return errors.Join(stdout.Close(), stderr.Close())
	}
	d.mu.Lock()
	d.running[e.ID] = cmd
	d.mu.Unlock()
	go func() {
		err := cmd.Wait()
		_, _ = stdout.Close(), stderr.Close()
		d.ended(e.ID, endOf(cmd, err, started))
	}()
	return nil
}

func endOf(cmd *exec.Cmd, err error, started time.Time) *storev1.ExecEnd {
	end := &storev1.ExecEnd{
		State: int32(agboxv1.ExecState_EXEC_STATE_FINISHED), StartedAt: started.UnixNano(), EndedAt: time.Now().UnixNano(),
	}
	if err == nil {
		return end
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	end.State, end.ExitCode, end.ErrorCode = int32(agboxv1.ExecState_EXEC_STATE_FAILED), int32(status.ExitStatus()), "EXEC_RUN_FAILED"
	end.ErrorMessage = fmt.Sprintf("the command ended with exit code %d", end.ExitCode)
	if status.Signaled() {
		end.State, end.ExitCode, end.ErrorCode = int32(agboxv1.ExecState_EXEC_STATE_CANCELLED), int32(128+status.Signal()), ""
		end.ErrorMessage = ""
	}
	return end
}

func (d *driver) ended(id string, end *storev1.ExecEnd) {
	d.mu.Lock()
	delete(d.running, id)
	d.ends[id] = end
	d.mu.Unlock()
	d.add("", id)
}

func (d *driver) kill(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cmd := d.running[id]; cmd != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // gone already: its end is on its way
	}
}

func (d *driver) killAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, cmd := range d.running {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}
