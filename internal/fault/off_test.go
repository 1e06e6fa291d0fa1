//go:build !faults

package fault

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A release has no failpoints: an armed point does nothing, and what is called is called once, with its own error.
func TestAReleaseIgnoresArmedPoints(t *testing.T) {
	dir := t.TempDir()
	plan := "engine.info.before kill\nengine.info.after error\nstore.Report.before error\n"
	if err := os.WriteFile(filepath.Join(dir, "plan"), []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvDir, dir)
	calls, mine := 0, errors.New("mine")
	err := Around(Engine, "info", func() error { calls++; return mine })
	if err != mine || calls != 1 { //nolint:errorlint // the very error, not one that wraps it
		t.Errorf("%d calls, %v", calls, err)
	}
	if err := Points(Store, Before, slices.Values([]string{"Report"})); err != nil || Caller("x") != "" {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
