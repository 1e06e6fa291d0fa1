package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/wait"
)

// deadline is the timeout of each wait.
const deadline = 2 * time.Minute

// daemon is an agboxd with its own directories.
type daemon struct {
	bin, home string
	cmd       *exec.Cmd
	conn      *grpc.ClientConn
	agboxv1.SandboxServiceClient
}

func newDaemon(ctx context.Context, bin string) (*daemon, error) {
	home, err := os.MkdirTemp("", "agbox-bench-")
	if err != nil {
		return nil, err
	}
	d := &daemon{bin: bin, home: home}
	conf := filepath.Join(home, "config/agents-sandbox/config.toml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(conf), 0o700), os.WriteFile(conf, []byte("[http]\nlisten = \"off\"\n"), 0o600)); err != nil {
		return nil, err
	}
	return d, d.start(ctx)
}

func (d *daemon) start(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(d.home, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd = exec.Command(filepath.Join(d.bin, "agboxd"))
	d.cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run", "XDG_DATA_HOME="+d.home+"/data", "XDG_CONFIG_HOME="+d.home+"/config")
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		return err
	}
	// A client backs off for a second after its first attempt, which would distort the measurement; so each attempt uses a new client.
	socket := d.home + "/run/agbox/agboxd.sock"
	for {
		d.conn, err = grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		d.SandboxServiceClient = agboxv1.NewSandboxServiceClient(d.conn)
		if _, err = d.Ping(ctx, &agboxv1.PingRequest{}); err == nil {
			return nil
		}
		_ = d.conn.Close()
		if err := wait.For(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func (d *daemon) kill() error {
	err := errors.Join(d.cmd.Process.Kill(), d.conn.Close())
	_ = d.cmd.Wait() // never nil after a kill
	return err
}

func (d *daemon) close() {
	instance, _ := os.ReadFile(filepath.Join(d.home, "data/agents-sandbox/instance"))
	_ = d.kill()
	label := "label=" + naming.Instance + "=" + strings.TrimSpace(string(instance))
	for _, script := range []string{
		"docker ps -aq --filter " + label + " | xargs -r docker rm -fv",
		"docker network ls -q --filter " + label + " | xargs -r docker network rm",
		"docker volume ls -q --filter " + label + " | xargs -r docker volume rm",
	} {
		_ = exec.Command("sh", "-c", script).Run()
	}
	_ = os.RemoveAll(d.home)
}

// follow reads events from a sequence until done returns true.
func (d *daemon) follow(ctx context.Context, id string, from uint64, done func(*agboxv1.SandboxEvent) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	stream, err := d.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from})
	for over := false; err == nil && !over; {
		var e *agboxv1.SandboxEvent
		if e, err = stream.Recv(); err == nil {
			over, err = done(e)
		}
	}
	return err
}

// accepted waits for the effect of a call that was answered with err.
func (d *daemon) accepted(ctx context.Context, err error, id string, from uint64, want agboxv1.SandboxState) error {
	if err != nil {
		return err
	}
	return d.follow(ctx, id, from, func(e *agboxv1.SandboxEvent) (bool, error) {
		if e.GetEventType() == agboxv1.EventType_SANDBOX_FAILED {
			return false, fmt.Errorf("%s: %s", id, e.GetSandboxPhase().GetErrorMessage())
		}
		return e.GetSandboxState() == want, nil
	})
}

func (d *daemon) create(ctx context.Context, id string) error {
	_, err := d.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: image}})
	return d.accepted(ctx, err, id, 0, agboxv1.SandboxState_SANDBOX_STATE_READY)
}

func (d *daemon) exec(ctx context.Context, id string) error {
	e, err := d.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
	if err != nil {
		return err
	}
	return d.follow(ctx, id, 0, func(ev *agboxv1.SandboxEvent) (bool, error) {
		if x := ev.GetExec(); x.GetExecId() != e.GetExecId() || x.GetExecState() == agboxv1.ExecState_EXEC_STATE_RUNNING {
			return false, nil
		}
		if ev.GetEventType() != agboxv1.EventType_EXEC_FINISHED {
			return false, fmt.Errorf("exec: %v", ev)
		}
		return true, nil
	})
}

func (d *daemon) pause(ctx context.Context, id string) error {
	_, err := d.PauseSandbox(ctx, &agboxv1.PauseSandboxRequest{SandboxId: id})
	return d.accepted(ctx, err, id, 0, agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
}

func (d *daemon) resume(ctx context.Context, id string) error {
	sb, err := d.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
	if err == nil {
		_, err = d.ResumeSandbox(ctx, &agboxv1.ResumeSandboxRequest{SandboxId: id})
	}
	return d.accepted(ctx, err, id, sb.GetSandbox().GetLastEventSequence(), agboxv1.SandboxState_SANDBOX_STATE_READY)
}

func (d *daemon) stop(ctx context.Context, id string) error {
	_, err := d.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: id})
	return d.accepted(ctx, err, id, 0, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
}

func (d *daemon) remove(ctx context.Context, id string) error {
	_, err := d.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id})
	return d.accepted(ctx, err, id, 0, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
}

// allReady waits until the daemon reports that the engine is available and all sandboxes are READY.
func (d *daemon) allReady(ctx context.Context, want int) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for {
		ping, pingErr := d.Ping(ctx, &agboxv1.PingRequest{})
		list, err := d.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{})
		if err := errors.Join(pingErr, err); err != nil {
			return err
		}
		ready := 0
		for _, sb := range list.GetSandboxes() {
			if sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_READY {
				ready++
			}
		}
		if ping.GetEngineProblem() == "" && ready == want {
			return nil
		}
		if err := wait.For(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}
