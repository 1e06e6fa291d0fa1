package lockfile

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheLockIsHeldByOneAndFreedByItsEnd(t *testing.T) {
	t.Parallel() // waits for locks
	path := filepath.Join(t.TempDir(), "run", "agboxd.lock")
	first, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(path); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), path) {
		t.Errorf("a second one got %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { first.Close() }) // like a daemon that was just killed
	again, err := Acquire(path)
	if err != nil {
		t.Fatalf("at the end of the first: %v", err)
	}
	again.Close()
}
