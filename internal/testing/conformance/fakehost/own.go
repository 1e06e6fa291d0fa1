package fakehost

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// mainProcess is what PID 1 of a primary is told to run beside the execs: what stands behind "--". Nil: nothing.
func mainProcess(args []string) []string {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[i+1:]
	}
	return nil
}

// runOwn runs the command that a container is, and ends the container with it, once all execs have recorded their end.
func (h *Host) runOwn(b *box, id string) {
	r := &runner{cmd: b.command(b.own, nil), grace: time.Hour} // the engine kills
	done, err := b.logMain(r.cmd)
	defer done()
	if err != nil {
		h.t.Errorf("logs of the main process: %v", err)
		return
	}
	b.mu.Lock()
	err = r.cmd.Start()
	if b.running[""] = r; b.ending {
		r.signal(syscall.SIGKILL)
	}
	b.mu.Unlock()
	code := 127 // no such program
	if err == nil {
		_ = r.cmd.Wait() // its state says how it ended
		code, _ = exitOf(r.cmd)
	}
	b.forget("")
	b.terminate()
	if !b.isDead() {
		h.engine.ExitContainer(id, code, false)
	}
}

// logMain has the output of a primary's main process go where the shim puts it, until the returned function is called.
func (b *box) logMain(cmd *exec.Cmd) (done func(), err error) {
	if b.logs == "" {
		return func() {}, nil
	}
	var files []*os.File
	for _, name := range []string{execjournal.StdoutName(execid.Main), execjournal.StderrName(execid.Main)} {
		f, openErr := os.OpenFile(filepath.Join(b.logs, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		files, err = append(files, f), errors.Join(err, openErr)
	}
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	return func() { _ = errors.Join(files[0].Close(), files[1].Close()) }, err
}

func (b *box) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, id)
}
