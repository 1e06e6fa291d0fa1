package fakehost

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/agbox/agbox/internal/host/execjournal"
)

func (b *box) cancel(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.running[id]; r != nil && !r.cancelled && !b.frozen {
		r.cancelled = true
		r.end()
	}
}

// end asks a command to end, and has it killed after its grace period.
func (r *runner) end() {
	r.signal(syscall.SIGTERM)
	if r.killer == nil {
		r.killer = time.AfterFunc(r.grace, func() { r.signal(syscall.SIGKILL) })
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
	if b.running[id] != nil || b.ending || b.frozen {
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
	cmd := b.command(req.Command, req.Env)
	r := &runner{cmd: cmd, grace: time.Duration(req.CancelGraceMillis) * time.Millisecond}
	over := func() { b.overLimit(req, r) }
	out, errOut := newBounded(stdout, req, over), newBounded(stderr, req, over)
	cmd.Dir, cmd.Stdout, cmd.Stderr = req.Cwd, out, errOut
	err := b.startWith(cmd, req, r)
	b.running[req.ExecID] = r
	b.work.Go(func() {
		if err == nil {
			_ = cmd.Wait() // its state says how it ended
		}
		if r.inbox != nil {
			close(r.inbox.gone)
		}
		f.journal.StdoutDroppedBytes, err1 = out.close()
		f.journal.StderrDroppedBytes, err2 = errOut.close()
		_ = errors.Join(err1, err2)
		b.ended(req.ExecID, r, f, err)
	})
	return nil
}

// startWith starts a command, with its inbox as standard input if it has one.
func (b *box) startWith(cmd *exec.Cmd, req execjournal.Request, r *runner) error {
	if !req.Inbox {
		return cmd.Start()
	}
	in, stdin, err := b.openInbox(req)
	if err != nil {
		return err
	}
	r.inbox, cmd.Stdin = in, stdin
	return errors.Join(cmd.Start(), stdin.Close())
}

// overLimit kills a command whose log is full, if that is what its request says.
func (b *box) overLimit(req execjournal.Request, r *runner) {
	if req.LogLimitAction == execjournal.LogLimitDrop {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r.over = true
	r.signal(syscall.SIGKILL)
}

// ended records the end, unless the container died with the command.
func (b *box) ended(id string, r *runner, f *fence, startErr error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { _ = f.free() }() // only a lock and a directory
	delete(b.running, id)
	if r.killer != nil {
		r.killer.Stop()
	}
	if b.dead {
		return
	}
	j := f.journal
	j.State, j.EndedAtNanos, j.Cancelled, j.Stopped = execjournal.StateEnded, time.Now().UnixNano(), r.cancelled, b.ending
	j.LogLimit = r.over
	if startErr != nil {
		j.ErrorCode, j.Error = execjournal.ErrorStartFailed, execjournal.Sentence(startErr.Error())
	} else {
		j.ExitCode, j.Signal = exitOf(r.cmd)
	}
	_ = f.end(j) // a test that removed the directory does not miss it
}

// terminate ends all commands and returns when their ends are on record.
func (b *box) terminate() {
	b.mu.Lock()
	b.ending = true
	for _, r := range b.running {
		r.end()
	}
	b.mu.Unlock()
	b.work.Wait()
}

// die kills all commands; none of them has an end.
func (b *box) die() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return
	}
	b.ending, b.dead = true, true
	for _, r := range b.running {
		r.signal(syscall.SIGKILL)
	}
	close(b.quit)
}

// command is a process group of its own with the container's environment and env over it.
func (b *box) command(args []string, env map[string]string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), b.env...)
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// exitOf is how a command that was waited for ended; signal is 0 when it exited by itself.
func exitOf(cmd *exec.Cmd) (code, signal int) {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal()), int(status.Signal())
	}
	return cmd.ProcessState.ExitCode(), 0
}
