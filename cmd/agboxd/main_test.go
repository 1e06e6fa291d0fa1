package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUsageErrorsExitWith2(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {"check-store"}, {"stray"}} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), args, &out, &errs); code != exitUsage || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%v: code %d, %q", args, code, errs.String())
		}
	}
}

func TestAnUnreadableDatabaseExitsWith4(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ids.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := run(context.Background(), []string{"check-store", path}, &out, &errs); code != exitStore || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("code %d, %q", code, errs.String())
	}
}
