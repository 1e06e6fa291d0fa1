package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/execjournal"
)

// host is PID 1 of every container of the fake engine. It speaks the real protocol of files and runs the commands as
// processes of this machine, which live as long as their container and know nothing of the daemon.
type host struct {
	t      testing.TB
	engine *dockertest.Fake
	wg     sync.WaitGroup

	mu    sync.Mutex
	boxes map[string]*box
}

// box is one life of one container.
type box struct {
	ctl, logs string
	quit      chan struct{} // closed at its death
	work      sync.WaitGroup

	mu      sync.Mutex
	ending  bool               // nothing is started any more
	dead    bool               // no end is recorded any more
	running map[string]*runner // by exec ID
}

type runner struct {
	cmd       *exec.Cmd
	cancelled bool
}

func newHost(t testing.TB, engine *dockertest.Fake) *host {
	h := &host{t: t, engine: engine, boxes: map[string]*box{}}
	engine.OnStart(h.started)
	engine.OnStop(func(d dockerx.ContainerDetail) { h.stopped(d.ID) })
	engine.StopBehavior = h.terminate
	return h
}

func (h *host) started(d dockerx.ContainerDetail) {
	spec, ok := h.engine.Spec(d.ID)
	if !ok {
		return
	}
	b := &box{quit: make(chan struct{}), running: map[string]*runner{}}
	for _, m := range spec.Mounts {
		switch m.Target {
		case execjournal.ContainerCtl:
			b.ctl = filepath.Join(m.Source, execjournal.ExecDir)
		case execjournal.ContainerLogs:
			b.logs = m.Source
		}
	}
	h.mu.Lock()
	h.boxes[d.ID] = b
	h.mu.Unlock()
	h.wg.Go(func() {
		if err := b.serve(); err != nil {
			h.t.Errorf("PID 1: %v", err)
		}
	})
}

func (h *host) stopped(id string) {
	h.mu.Lock()
	b := h.boxes[id]
	delete(h.boxes, id)
	h.mu.Unlock()
	if b != nil {
		b.die()
	}
}

// terminate is the TERM of a stop: the container ends once all commands have recorded their end.
func (h *host) terminate(id string) time.Duration {
	h.mu.Lock()
	b := h.boxes[id]
	h.mu.Unlock()
	if b != nil {
		h.wg.Go(func() {
			b.terminate()
			h.engine.ExitContainer(id, 143, false)
		})
	}
	return time.Hour
}

func (h *host) close() {
	h.mu.Lock()
	for id, b := range h.boxes {
		b.die()
		delete(h.boxes, id)
	}
	h.mu.Unlock()
	h.wg.Wait()
}

// serve carries out requests until its container is dead.
func (b *box) serve() error {
	defer b.work.Wait()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Add(b.ctl); err != nil {
		return err
	}
	for {
		if err := b.scan(); err != nil {
			return err
		}
		select {
		case <-b.quit:
			return nil
		case <-w.Events:
		case err := <-w.Errors:
			return err
		}
	}
}

func (b *box) scan() error {
	entries, err := os.ReadDir(b.ctl)
	if errors.Is(err, os.ErrNotExist) {
		return nil // its container is being removed
	}
	for _, e := range entries {
		switch id, cancel, ok := execjournal.RequestID(e.Name()); {
		case !ok:
		case cancel:
			b.cancel(id)
		default:
			err = errors.Join(err, b.begin(id))
		}
	}
	return err
}

func (b *box) cancel(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.running[id]; r != nil {
		r.cancelled = true
		r.signal(syscall.SIGTERM)
	}
}

func (r *runner) signal(sig syscall.Signal) {
	if r.cmd.Process != nil {
		_ = syscall.Kill(-r.cmd.Process.Pid, sig) // gone already: its end is on its way
	}
}

// begin starts a command, unless it has run before.
func (b *box) begin(id string) error {
	data, err := os.ReadFile(filepath.Join(b.ctl, execjournal.RequestName(id)))
	if errors.Is(err, os.ErrNotExist) {
		return nil // forgotten: it has ended
	}
	if err != nil {
		return err
	}
	req, err := execjournal.DecodeRequest(data, id)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[id] != nil || b.ending {
		return nil
	}
	f, err := newFence(b.logs, req)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return b.spawn(req, f)
}

// spawn is called with mu held.
func (b *box) spawn(req execjournal.Request, f *fence) error {
	stdout, err1 := os.Create(filepath.Join(b.logs, execjournal.StdoutName(req.ExecID)))
	stderr, err2 := os.Create(filepath.Join(b.logs, execjournal.StderrName(req.ExecID)))
	if err := errors.Join(err1, err2); err != nil {
		return errors.Join(err, f.free())
	}
	cmd := exec.Command(req.Command[0], req.Command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = req.Cwd, stdout, stderr, os.Environ()
	for k, v := range req.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Start()
	r := &runner{cmd: cmd}
	b.running[req.ExecID] = r
	b.work.Go(func() {
		if err == nil {
			_ = cmd.Wait() // its state says how it ended
		}
		_ = errors.Join(stdout.Close(), stderr.Close())
		b.ended(req.ExecID, r, f, err)
	})
	return nil
}

// ended records the end, unless the container died with the command.
func (b *box) ended(id string, r *runner, f *fence, startErr error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer f.free()
	delete(b.running, id)
	if b.dead {
		return
	}
	j := f.journal
	j.State, j.EndedAtNanos, j.Cancelled, j.Stopped = execjournal.StateEnded, time.Now().UnixNano(), r.cancelled, b.ending
	if startErr != nil {
		j.ErrorCode, j.Error = execjournal.ErrorStartFailed, execjournal.Sentence(startErr.Error())
	} else if status := r.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		j.Signal, j.ExitCode = int(status.Signal()), 128+int(status.Signal())
	} else {
		j.ExitCode = status.ExitStatus()
	}
	_ = f.end(j) // a test that removed the directory does not miss it
}

// terminate ends all commands and returns when their ends are on record.
func (b *box) terminate() {
	b.mu.Lock()
	b.ending = true
	for _, r := range b.running {
		r.signal(syscall.SIGTERM)
	}
	b.mu.Unlock()
	b.work.Wait()
}

// die kills all commands; none of them has an end.
func (b *box) die() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ending, b.dead = true, true
	for _, r := range b.running {
		r.signal(syscall.SIGKILL)
	}
	close(b.quit)
}

// fence is the lock and the journal of one exec, as its supervisor holds them.
type fence struct {
	dir, lock *os.File
	journal   execjournal.Journal
}

// newFence takes the lock and links the journal. Errors: os.ErrExist when somebody was first.
func newFence(logs string, req execjournal.Request) (*fence, error) {
	dir, err := os.Open(logs)
	if err != nil {
		return nil, err
	}
	f := &fence{dir: dir, journal: execjournal.Journal{
		Version: execjournal.Version, ExecID: req.ExecID, Nonce: req.Nonce, State: execjournal.StateStarted,
		StartedAtNanos: time.Now().UnixNano(),
	}}
	if err := f.take(logs, req.ExecID); err != nil {
		return nil, errors.Join(err, f.free())
	}
	return f, nil
}

func (f *fence) take(logs, id string) (err error) {
	f.lock, err = os.OpenFile(filepath.Join(logs, execjournal.LockName(id)), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	data, err := execjournal.Encode(f.journal)
	if err != nil {
		return err
	}
	return execjournal.CreateExclusive(int(f.dir.Fd()), execjournal.TempName(id, "start"), execjournal.JournalName(id), data)
}

func (f *fence) end(j execjournal.Journal) error {
	data, err := execjournal.Encode(j)
	if err != nil {
		return err
	}
	return execjournal.Replace(int(f.dir.Fd()), execjournal.TempName(j.ExecID, "end"),
		execjournal.JournalName(j.ExecID), data, 0o644, true)
}

func (f *fence) free() error {
	err := f.dir.Close()
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}
