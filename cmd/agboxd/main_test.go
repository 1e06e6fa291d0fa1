package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTheLockIsHeldByOneAndFreedByItsEnd(t *testing.T) {
	t.Parallel() // waits for locks
	path := filepath.Join(t.TempDir(), "run", "agboxd.lock")
	first, err := lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(path); !errors.Is(err, errRunning) || !strings.Contains(err.Error(), path) {
		t.Errorf("a second one got %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { first.Close() }) // like a daemon that was just killed
	again, err := lock(path)
	if err != nil {
		t.Fatalf("at the end of the first: %v", err)
	}
	again.Close()
}

func TestTheShimIsInstalledByContentWhateverTheUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	data, source := t.TempDir(), filepath.Join(t.TempDir(), "shim")
	install := func(body string) string {
		t.Helper()
		if err := os.WriteFile(source, []byte(body), 0o755); err != nil {
			t.Fatal(err)
		}
		dir, err := installShim(source, data)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	one := install("one")
	if again := install("one"); again != one {
		t.Errorf("the same shim went to %s and %s", one, again)
	}
	two := install("two")
	for dir, want := range map[string]string{one: "one", two: "two"} {
		body, err := os.ReadFile(filepath.Join(dir, shimName))
		if err != nil || string(body) != want {
			t.Errorf("%s holds %q, %v", dir, body, err)
		}
		for _, path := range []string{dir, filepath.Join(dir, shimName)} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
	}
}

func TestAMissingShimIsNamed(t *testing.T) {
	_, err := findShim("")
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v", err)
	}
}

func TestReadinessSaysWhatIsNotReady(t *testing.T) {
	body, ready := readiness([]check{{name: "store"}, {name: "engine", problem: "it is away"}})
	if want := "[+]store ok\n[-]engine: it is away\nnot ready\n"; body != want || ready {
		t.Errorf("got %t, %q", ready, body)
	}
	body, ready = readiness([]check{{name: "store", warning: "one record"}, {name: "engine"}})
	if want := "[!]store: one record\n[+]engine ok\nready\n"; body != want || !ready {
		t.Errorf("got %t, %q", ready, body)
	}
}

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
