// Package fakehost is the machine under the fake engine: it plays PID 1 of every container, so that a daemon on the fake
// runs real commands.
package fakehost

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// Host is PID 1 of every container of a fake engine. In primaries it speaks the real protocol of files and runs the
// commands as processes of this machine, in services it runs the container's own command. They live as long as their
// container and know nothing of the daemon.
type Host struct {
	t      testing.TB
	engine *dockertest.Fake
	wg     sync.WaitGroup

	mu    sync.Mutex
	boxes map[string]*box
}

// box is one life of one container.
type box struct {
	ctl, logs string
	env       []string
	own       []string      // the command that PID 1 is; nil: PID 1 serves requests, or only waits
	release   func()        // starts own, once
	quit      chan struct{} // closed at its death
	thawed    chan struct{} // of size 1: PID 1 looks again
	work      sync.WaitGroup

	mu      sync.Mutex
	ending  bool               // nothing is started any more
	dead    bool               // no end is recorded any more
	frozen  bool               // nothing happens at all
	running map[string]*runner // by exec ID; a service's own command has ""
}

type runner struct {
	cmd       *exec.Cmd
	inbox     *inbox        // nil: its standard input is empty
	grace     time.Duration // from TERM to KILL
	killer    *time.Timer   // set once it was asked to end
	cancelled bool
	over      bool // it wrote more than a log may hold, and is ended for that
}

// New takes over the containers of an engine that has none yet. What PID 1 could not do is an error of t.
func New(t testing.TB, engine *dockertest.Fake) *Host {
	h := &Host{t: t, engine: engine, boxes: map[string]*box{}}
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
	b := &box{env: spec.Env, quit: make(chan struct{}), thawed: make(chan struct{}, 1), running: map[string]*runner{}}
	for _, m := range spec.Mounts {
		switch m.Target {
		case execjournal.ContainerCtl:
			b.ctl = filepath.Join(m.Source, execjournal.ExecDir)
		case execjournal.ContainerLogs:
			b.logs = m.Source
		}
	}
	b.own = slices.Concat(spec.Entrypoint, spec.Cmd)
	if b.ctl != "" {
		b.own = mainProcess(b.own)
	}
	h.mu.Lock()
	h.boxes[d.ID] = b
	h.mu.Unlock()
	own := sync.OnceFunc(func() {
		if b.own != nil {
			h.wg.Go(func() { h.runOwn(b, d.ID) })
		}
	})
	if b.ctl == "" {
		own()
		return
	}
	b.release = own
	h.wg.Go(func() {
		if err := b.serve(); err != nil && !b.isDead() { // what it looks at goes with the container
			h.t.Errorf("PID 1: %v", err)
		}
	})
}

func (b *box) isDead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dead
}

// Kill ends all that runs in a container, and when it returns no lock is held any more: the kernel too ends a container's
// processes before its engine sees it dead. The caller then tells the fake engine of the death.
func (h *Host) Kill(ctx context.Context, container string) error {
	d, err := h.engine.InspectContainer(ctx, container)
	if err != nil {
		return err
	}
	h.mu.Lock()
	b := h.boxes[d.ID]
	h.mu.Unlock()
	if b != nil {
		b.die()
		b.work.Wait()
	}
	return nil
}

func (h *Host) stopped(id string) {
	h.mu.Lock()
	b := h.boxes[id]
	delete(h.boxes, id)
	h.mu.Unlock()
	if b != nil {
		b.die()
	}
}

func (h *Host) paused(id string, frozen bool) {
	h.mu.Lock()
	b := h.boxes[id]
	h.mu.Unlock()
	if b != nil {
		b.freeze(frozen)
	}
}

// terminate is the TERM of a stop, which thaws: the container ends once all commands have recorded their end.
func (h *Host) terminate(id string) time.Duration {
	h.mu.Lock()
	b := h.boxes[id]
	h.mu.Unlock()
	if b != nil {
		b.freeze(false)
		h.wg.Go(func() {
			b.terminate()
			if b.own == nil { // otherwise its end is the end of the container
				h.engine.ExitContainer(id, 143, false)
			}
		})
	}
	return time.Hour
}

// Close ends all containers and returns when nothing of them runs.
func (h *Host) Close() {
	h.mu.Lock()
	for id, b := range h.boxes {
		b.die()
		delete(h.boxes, id)
	}
	h.mu.Unlock()
	h.wg.Wait()
}
