package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// CheckVerb is the hidden verb of agboxd and agbox that checks the database named by its only argument. Reading a damaged database may
// crash the process, so it always runs as a child process.
const CheckVerb = "check-store"

// CheckDatabase copies the database to a temporary file in dir, runs this program to check it, and removes it. Errors: ErrDataLoss if the
// check failed; ctx's; the I/O error.
func (b *File) CheckDatabase(ctx context.Context, dir string) error {
	f, err := os.CreateTemp(dir, ".agbox-verify-*")
	if err != nil {
		return fmt.Errorf("make a place to check the database in: %w", err)
	}
	err = b.ExtractDatabase(ctx, f)
	if err = errors.Join(err, f.Close()); err == nil {
		err = CheckInChild(ctx, f.Name())
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// CheckInChild runs this program as a child process that checks the database at path. Errors: ErrDataLoss if the check failed; ctx's.
func CheckInChild(ctx context.Context, path string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, self, CheckVerb, path)
	cmd.Args[0] = os.Args[0]
	cmd.Stderr = &out
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(out.String()), "\n")
	return fmt.Errorf("the database is damaged: %s (%w): %w", first, err, errdefs.ErrDataLoss)
}
