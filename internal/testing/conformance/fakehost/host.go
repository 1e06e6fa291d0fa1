// Package fakehost is the machine under the fake engine: it runs the processes of every container, so that a daemon on the fake runs real
// commands. In primaries the real shim runs, outside of a container.
package fakehost

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/shim"
)

// placesEnv tells a process that it is the shim of a container, and which directories of the host that container has mounted.
const placesEnv = "AGBOX_FAKEHOST_PLACES"

// RunShim runs the shim and exits, if a Host started this process for that. Call it first in TestMain.
func RunShim() {
	at, ok := os.LookupEnv(placesEnv)
	if !ok || len(os.Args) < 2 || !slices.Contains([]string{"init", "main", "exec", "reserve", "serve", execjournal.ProofVerb, execjournal.HoldVerb}, os.Args[1]) {
		return
	}
	dirs := strings.Split(at, ":")
	os.Exit(shim.Run(os.Args[1:], shim.Places{Ctl: dirs[0], Logs: dirs[1], Out: dirs[2]}))
}

// Host runs the processes of all containers of a fake engine. They live as long as their container and know nothing of the daemon.
type Host struct {
	engine *dockertest.Fake
	wg     sync.WaitGroup

	mu    sync.Mutex
	boxes map[string]*box // by container ID
}

// box is one run of one container.
type box struct {
	id   string
	cmd  *exec.Cmd
	gone chan struct{} // closed when the main process has ended

	mu   sync.Mutex
	dead bool // the engine knows of the end
}

// New runs the containers of an engine that has none yet.
func New(engine *dockertest.Fake) *Host {
	h := &Host{engine: engine, boxes: map[string]*box{}}
	engine.OnStart(h.started)
	engine.OnStop(func(d dockerx.ContainerDetail) { h.stopped(d.ID) })
	engine.OnPause(func(d dockerx.ContainerDetail) { h.paused(d.ID, d.Paused) })
	engine.StopBehavior = h.terminate
	engine.HealthBehavior = health
	return h
}

func (h *Host) started(d dockerx.ContainerDetail) {
	spec, ok := h.engine.Spec(d.ID)
	if !ok {
		return
	}
	cmd, err := command(spec)
	if cmd == nil && err == nil {
		return
	}
	b := &box{id: rand.Text(), cmd: cmd, gone: make(chan struct{})}
	if err == nil {
		cmd.Env = append(cmd.Env, boxEnv+"="+b.id)
		err = cmd.Start()
	}
	h.mu.Lock()
	h.boxes[d.ID] = b
	h.mu.Unlock()
	h.wg.Go(func() {
		code := 127 // no such program
		if err == nil {
			_ = cmd.Wait() // its state says how it ended
			code = exitCode(cmd)
			b.kill()
		}
		close(b.gone)
		if b.die() {
			h.engine.ExitContainer(d.ID, code, false)
		}
	})
}

// command returns the main process of a container; nil: it has none.
func command(spec dockerx.ContainerSpec) (*exec.Cmd, error) {
	args, env := slices.Concat(spec.Entrypoint, spec.Cmd), spec.Env
	if len(args) == 0 {
		return nil, nil
	}
	cmd := exec.Command(args[0], args[1:]...)
	mounts := map[string]string{}
	for _, m := range spec.Mounts {
		mounts[m.Target] = m.Source
	}
	if ctl := mounts[execjournal.ContainerCtl]; ctl != "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		cmd.Path, cmd.Err = self, nil
		for i, arg := range cmd.Args {
			if strings.HasPrefix(arg, "--host-user=") { // only root could start commands of other users
				cmd.Args[i] = fmt.Sprintf("--host-user=%d:%d", os.Geteuid(), os.Getegid())
			}
		}
		places := []string{ctl, mounts[execjournal.ContainerLogs], mounts[execjournal.ContainerOut]}
		env = slices.Concat(env, []string{placesEnv + "=" + strings.Join(places, ":"), "GORACE=atexit_sleep_ms=0"})
	}
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	return cmd, nil
}

// exitCode returns the exit code of a process that was waited for, as a container's.
func exitCode(cmd *exec.Cmd) int {
	if status, ok := cmd.ProcessState.Sys().(unix.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// die records that the engine knows of the end, and reports whether that is new.
func (b *box) die() (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	news, b.dead = !b.dead, true
	return news
}

// Kill ends all that runs in a container. When it returns no lock is held any more: the kernel too ends a container's processes before its
// engine sees it dead. The caller then tells the fake engine of the death.
func (h *Host) Kill(ctx context.Context, container string) error {
	d, err := h.engine.InspectContainer(ctx, container)
	if err != nil {
		return err
	}
	if b := h.box(d.ID); b != nil {
		b.end()
	}
	return nil
}

func (h *Host) box(id string) *box {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boxes[id]
}

// end kills a container's processes without telling the engine.
func (b *box) end() {
	b.die()
	b.kill()
	<-b.gone
}

func (h *Host) stopped(id string) {
	h.mu.Lock()
	b := h.boxes[id]
	delete(h.boxes, id)
	h.mu.Unlock()
	if b != nil {
		b.end()
	}
}

func (h *Host) paused(id string, frozen bool) {
	if b := h.box(id); b != nil {
		b.freeze(frozen)
	}
}

// terminate is the TERM of a stop, which thaws. The end of the main process is that of the container.
func (h *Host) terminate(id string) time.Duration {
	if b := h.box(id); b != nil && b.cmd.Process != nil {
		b.freeze(false)
		_ = b.cmd.Process.Signal(unix.SIGTERM) // it has ended already
	}
	return time.Hour
}

// Close ends all containers and returns when nothing of them runs.
func (h *Host) Close() {
	h.mu.Lock()
	boxes := h.boxes
	h.boxes = map[string]*box{}
	h.mu.Unlock()
	for _, b := range boxes {
		b.end()
	}
	h.wg.Wait()
}
