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

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/wait"
)

// deadline is the timeout of each wait.
const deadline = 2 * time.Minute

// daemon is an agboxd with its own directories.
type daemon struct {
	bin, home string
	cmd       *exec.Cmd
	*client.Client
}

// gateway is the configuration of a daemon that serves E2B's SDKs, in sandboxes of the same image as all others here.
const gateway = "[e2b]\nlisten = \"127.0.0.1:0\"\n[e2b.templates]\nbase = \"" + image + "\"\n"

// newDaemon starts a daemon with more lines of configuration.
func newDaemon(ctx context.Context, bin, more string) (*daemon, error) {
	home, err := os.MkdirTemp("", "agbox-bench-")
	if err != nil {
		return nil, err
	}
	d := &daemon{bin: bin, home: home}
	conf := filepath.Join(home, "config/agents-sandbox/config.toml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(conf), 0o700), os.WriteFile(conf, []byte("[http]\nlisten = \"off\"\n"+more), 0o600)); err != nil {
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
	// A client backs off after a failed attempt, which would distort the measurement; so each attempt uses a new client.
	for {
		if d.Client, err = client.Dial(d.home + "/run/agbox/agboxd.sock"); err != nil {
			return err
		}
		if _, err = d.Ping(ctx); err == nil {
			return nil
		}
		_ = d.Close()
		if err := wait.For(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func (d *daemon) kill() error {
	err := errors.Join(d.cmd.Process.Kill(), d.Close())
	_ = d.cmd.Wait() // never nil after a kill
	return err
}

// restart kills the daemon and returns the time from its start until ready returns. With lost it removes the database in between.
func (d *daemon) restart(ctx context.Context, lost bool, ready func(context.Context) error) (time.Duration, error) {
	if err := d.kill(); err != nil {
		return 0, err
	}
	if lost {
		if err := os.Remove(d.home + "/data/agents-sandbox/ids.db"); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	if err := d.start(ctx); err != nil {
		return 0, err
	}
	err := ready(ctx)
	return time.Since(begin), err
}

func (d *daemon) end() {
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

// accepted waits for the effect of a call that was answered with err.
func (d *daemon) accepted(ctx context.Context, err error, id string, want client.Condition) error {
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	_, err = d.WaitSandbox(ctx, id, want)
	return err
}

func (d *daemon) create(ctx context.Context, id string) error {
	_, err := d.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: image}})
	return d.accepted(ctx, err, id, client.Ready)
}

func (d *daemon) exec(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	e, err := d.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
	if err != nil {
		return err
	}
	end, err := d.WaitExec(ctx, e.GetExecId())
	if err == nil && end.GetState() != agboxv1.ExecState_EXEC_STATE_FINISHED {
		err = fmt.Errorf("exec: %v", end)
	}
	return err
}

func (d *daemon) pause(ctx context.Context, id string) error {
	return d.accepted(ctx, d.PauseSandbox(ctx, id), id, client.Paused)
}

func (d *daemon) resume(ctx context.Context, id string) error {
	return d.accepted(ctx, d.ResumeSandbox(ctx, id), id, client.Ready)
}

func (d *daemon) stop(ctx context.Context, id string) error {
	return d.accepted(ctx, d.StopSandbox(ctx, id), id, client.Stopped)
}

func (d *daemon) remove(ctx context.Context, id string) error {
	return d.accepted(ctx, d.DeleteSandbox(ctx, id), id, client.Deleted)
}

// poll waits until done returns true.
func poll(ctx context.Context, every time.Duration, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for {
		if ok, err := done(ctx); ok || err != nil {
			return err
		}
		if err := wait.For(ctx, every); err != nil {
			return err
		}
	}
}

// allReady waits until the daemon reports that the engine is available and all sandboxes are READY.
func (d *daemon) allReady(ctx context.Context, want int) error {
	return poll(ctx, time.Millisecond, func(ctx context.Context) (bool, error) {
		ping, pingErr := d.Ping(ctx)
		list, err := d.ListSandboxes(ctx, false, nil)
		ready := 0
		for _, sb := range list {
			if sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_READY {
				ready++
			}
		}
		return ping.GetEngineProblem() == "" && ready == want, errors.Join(pingErr, err)
	})
}
