package recordfile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOnAFullDiskAnAgentIsAsItWasAndCatchesUpWithSpace(t *testing.T) {
	onAFullDisk(t, "agents")
}

func fillTheDiskWithAgents(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 128<<10), 0o600); err != nil {
		return err
	}
	root := filepath.Join(dir, "agents")
	var errs []error
	s := &fakeAgents{agents: map[string]map[string]string{}, marks: map[string]uint64{}, past: map[string]bool{}}
	s.files = NewAgents(root, quiet(), func(err error) { errs = append(errs, err) })
	var last map[string]string
	for i := range 60 { // far beyond what fits
		s.write("ada", fmt.Sprint("k", i%10), strings.Repeat("x", 5000+i))
		if len(errs) == 0 {
			last = maps.Clone(s.agents["ada"])
		}
	}
	if len(errs) == 0 || !errors.Is(errs[0], syscall.ENOSPC) {
		return fmt.Errorf("errors are %v", errs)
	}
	flush := func() { s.files.flush(context.Background(), s, time.Now().Add(time.Hour)) }
	flush()
	if err := hasOnly(root, last); err != nil {
		return fmt.Errorf("on the full disk: %w", err)
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	flush()
	if err := hasOnly(root, s.agents["ada"]); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	n := len(errs)
	s.write("ada", "next", "1")
	if err := hasOnly(root, s.agents["ada"]); err != nil || len(errs) > n {
		return fmt.Errorf("the next change: %w, %v", err, errs[n:])
	}
	return nil
}

// hasOnly checks what the file of the one agent holds.
func hasOnly(root string, want map[string]string) error {
	found, _, _, err := ReadAgents(root)
	if err != nil || len(found) != 1 || found[0].Torn {
		return fmt.Errorf("found %v, %w", found, err)
	}
	got := map[string]string{}
	err = found[0].Replay(replayInto(got))
	if err != nil || !maps.Equal(got, want) {
		return fmt.Errorf("%d records, want %d: %w", len(got), len(want), err)
	}
	return nil
}

func TestADirectoryThatCannotBeSyncedIsTriedAgain(t *testing.T) {
	root := filepath.Join(t.TempDir(), "agents")
	failed := 0
	d := NewAgents(root, quiet(), func(error) { failed++ })
	flush := func() (more bool) { return d.flush(t.Context(), nil, time.Now()) }
	if err := os.WriteFile(root, nil, 0o600); err != nil { // no directory
		t.Fatal(err)
	}
	if more := flush(); !more || failed != 1 {
		t.Errorf("there is more: %v, after %d errors", more, failed)
	}
	if err := os.Remove(root); err != nil {
		t.Fatal(err)
	}
	if more := flush(); more || failed != 1 {
		t.Errorf("there is still more: %v, after %d errors", more, failed)
	}
}
