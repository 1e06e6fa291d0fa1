package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
)

// snapshot copies s to a new file and returns options for it.
func snapshot(t testing.TB, s *Store) Options {
	t.Helper()
	o := testOptions(t)
	must(t, os.MkdirAll(filepath.Dir(o.Path), 0o700))
	f, err := os.OpenFile(o.Path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	must(t, err)
	schema, err := s.Snapshot(ctx, f)
	must(t, err)
	must(t, f.Close())
	if schema != schemaVersion {
		t.Errorf("schema %d", schema)
	}
	return o
}

// TestSnapshotsWhileManyWrite: each snapshot is one moment of the history: every sandbox has a prefix of its final events, and everything
// acknowledged before is there.
func TestSnapshotsWhileManyWrite(t *testing.T) {
	s := open(t, testOptions(t))
	writing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked, more := map[string]uint64{}, sync.NewCond(&mu)
	ack := func(format string, args ...any) {
		var kind, id string
		var seq uint64
		if n, _ := fmt.Sscan(fmt.Sprintf(format, args...), &kind, &id, &seq); n == 3 && kind == "sandbox" {
			mu.Lock()
			acked[id] = seq
			mu.Unlock()
			more.Broadcast()
		}
	}
	for w := range 50 {
		wg.Go(func() {
			for i := 0; writing.Err() == nil; i++ {
				if err := oneLife(s, fmt.Sprintf("box-%d-%d", w, i), ack); err != nil {
					mu.Lock()
					defer mu.Unlock()
					t.Errorf("writer %d: %v", w, err)
					more.Broadcast()
					return
				}
			}
		})
	}
	var taken []Options
	var before []map[string]uint64
	for range 4 {
		mu.Lock()
		for enough := len(acked) + 20; len(acked) < enough && !t.Failed(); {
			more.Wait()
		}
		now := make(map[string]uint64, len(acked))
		for id, seq := range acked {
			now[id] = seq
		}
		mu.Unlock()
		before, taken = append(before, now), append(taken, snapshot(t, s))
	}
	stop()
	wg.Wait()
	for i, o := range taken {
		checkDatabase(t, o.Path)
		prefixOf(t, open(t, o), s, before[i])
	}
	t.Logf("%d, then %d sandboxes", len(before[0]), len(acked))
}

func prefixOf(t *testing.T, old, now *Store, acked map[string]uint64) {
	t.Helper()
	if old.InstanceID() != now.InstanceID() {
		t.Errorf("instance %s, want %s", old.InstanceID(), now.InstanceID())
	}
	if c := old.Corrupt(); len(c) > 0 {
		t.Fatalf("corrupt: %v", c)
	}
	for id, seq := range acked {
		if got := get1(t, old, id).LastSequence; got < seq {
			t.Fatalf("%s has %d events, and %d were acknowledged before", id, got, seq)
		}
	}
	for _, id := range old.LiveIDs() {
		mine, final := allEvents(t, old, id), allEvents(t, now, id)
		for i := range mine {
			if !proto.Equal(mine[i], final[i]) {
				t.Fatalf("event %d of %s is %v, and later %v", i, id, mine[i], final[i])
			}
		}
		wantActive := get1(t, old, id).LastSequence == 4
		if active := old.ActiveExecs(id); (len(active) == 1) != wantActive {
			t.Fatalf("%s: active %v", id, active)
		}
	}
}

func TestASnapshotWithoutRoomIsRefused(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	must(t, err)
	defer f.Close()
	err = checkRoom(f, 1<<60)
	refusedFor(t, err, "BACKUP_NO_SPACE", errdefs.ErrUnavailable, err.Error())
	must(t, checkRoom(f, 1))
	for _, full := range noSpace { // while it is copied
		err := copied(&fs.PathError{Op: "write", Path: f.Name(), Err: full}, 1<<20)
		refusedFor(t, err, "BACKUP_NO_SPACE", errdefs.ErrUnavailable, err.Error())
	}
	if err := copied(io.ErrClosedPipe, 1<<20); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("another error became %v", err)
	}
	must(t, copied(nil, 1<<20))
}

func TestASnapshotEndsWithItsContext(t *testing.T) {
	s := open(t, testOptions(t))
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	must(t, err)
	defer f.Close()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Snapshot(ended, f); err == nil {
		t.Error("it went on")
	}
	create(t, s, "box") // and does not block writers
}

func TestExecIDsInPages(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	fill(t, s, 600, func(i int) {
		id := fmt.Sprintf("exec-%03d", i)
		if _, err := s.CreateExec(ctx, execRequest("box", id), Caller{}); err != nil {
			t.Error(err)
		}
	})
	endExec(t, s, "exec-100")
	var all []string
	for after := ""; ; {
		page, err := s.ExecIDs(ctx, "box", after)
		must(t, err)
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
		after = page[len(page)-1]
	}
	if len(all) != 600 || all[0] != "exec-000" || all[599] != "exec-599" {
		t.Errorf("%d execs", len(all))
	}
	if none, err := s.ExecIDs(ctx, "other", ""); err != nil || len(none) > 0 {
		t.Errorf("%v, %v", none, err)
	}
}
