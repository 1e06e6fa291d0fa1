package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
)

func init() { children["growth"] = inDirectory(growBeyondTheLimit) }

// TestAFileThatCanNotGrow runs in a process of its own with a file size limit.
func TestAFileThatCanNotGrow(t *testing.T) {
	program := childProgram(t, "growth")
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Env = append(os.Environ(), pathEnv+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

func growBeyondTheLimit(dir string) error {
	signal.Ignore(syscall.SIGXFSZ) // the kernel sends it in addition to EFBIG
	var fatal error
	o := Options{
		Path: filepath.Join(dir, "ids.db"), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnFatal: func(err error) { fatal = err },
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 256 << 10, Max: old.Max}); err != nil {
		return err
	}
	accepted, err := createUntilError(s, 0)
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), growthError) {
		return fmt.Errorf("after %d creates: %w", accepted, err)
	}
	fmt.Printf("%d sandboxes, then: %v\n", accepted, err)
	if err := errors.Join(fatal, readAll(s, accepted)); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	more := accepted + 10
	for i := accepted; i < more; i++ {
		if _, err := s.CreateSandbox(context.Background(), boxID(i), "", spec(), nil); err != nil {
			return fmt.Errorf("with space again: %w", err)
		}
	}
	return errors.Join(fatal, afterwards(s, o, more))
}
