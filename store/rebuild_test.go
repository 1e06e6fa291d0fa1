package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

const someUUID = "11111111-2222-4333-8444-555555555555"

func TestARebuildIsPendingUntilItIsDone(t *testing.T) {
	o := testOptions(t)
	o.Instance, o.Rebuild = someUUID, true
	s := open(t, o)
	s = reopen(t, s) // as after a kill in the middle
	if !s.RebuildPending() || s.InstanceID() != someUUID {
		t.Fatalf("pending %v, instance %s", s.RebuildPending(), s.InstanceID())
	}
	if written, err := s.MarkerWritten(ctx); !written || err != nil {
		t.Errorf("an engine without a marker is a new one: %v, %v", written, err)
	}
	must(t, s.RebuildDone(ctx))
	must(t, s.RebuildDone(ctx))
	if s.RebuildPending() || reopen(t, s).RebuildPending() {
		t.Fatal("still pending")
	}
	checkClosed(t, s.o.Path)
}

func TestAFileThatIsThereKeepsItsInstanceAndIsNotRebuilt(t *testing.T) {
	o := testOptions(t)
	s := open(t, o)
	if s.RebuildPending() {
		t.Fatal("a first start is no rebuild")
	}
	id := s.InstanceID()
	must(t, s.Close())
	o.Instance, o.Rebuild = someUUID, true
	if s = open(t, o); s.RebuildPending() || s.InstanceID() != id {
		t.Fatalf("pending %v, instance %s, was %s", s.RebuildPending(), s.InstanceID(), id)
	}
}

func TestAnInstanceThatIsNoUUIDMakesNoFile(t *testing.T) {
	o := testOptions(t)
	o.Instance = "mine"
	if _, err := Open(ctx, o); !errdefs.IsInvalidArgument(err) {
		t.Fatal(err)
	}
	if left := leftIn(t, filepath.Dir(o.Path)); left != "ids.db.running" {
		t.Fatalf("left: %s", left)
	}
}

// checkClosed checks a copy of the database of an open store.
func checkClosed(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	copied := filepath.Join(t.TempDir(), "ids.db")
	must(t, os.WriteFile(copied, data, 0o600))
	checkDatabase(t, copied)
}

func leftIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

var asideAt = time.Date(2026, 3, 4, 5, 6, 7, 8, time.FixedZone("", 3600))

func TestADatabaseIsSetAsideUnderANameThatIsFree(t *testing.T) {
	o := testOptions(t)
	must(t, open(t, o).Close())
	for i, want := range []string{".damaged-20260304T040607Z", ".damaged-20260304T040607Z-1", ".damaged-20260304T040607Z-2"} {
		content := []byte{byte('a' + i)}
		must(t, os.WriteFile(o.Path, content, 0o600))
		must(t, os.Chmod(o.Path, 0o644))
		aside, err := SetAside(o.Path, asideAt)
		if err != nil || aside != o.Path+want {
			t.Fatalf("%q, %v", aside, err)
		}
		got, err := os.ReadFile(aside)
		info, errStat := os.Stat(aside)
		if err != nil || errStat != nil || string(got) != string(content) || info.Mode().Perm() != 0o600 {
			t.Fatalf("%q with mode %v: %v, %v", got, info.Mode(), err, errStat)
		}
		if _, err := os.Lstat(o.Path); !os.IsNotExist(err) {
			t.Fatalf("it is still there: %v", err)
		}
	}
	if aside, err := SetAside(o.Path, asideAt); aside != "" || err != nil {
		t.Fatalf("nothing is there: %q, %v", aside, err)
	}
	create(t, open(t, o), "box") // a new one replaces it
}

func TestADatabaseInUseIsNotSetAside(t *testing.T) {
	t.Parallel() // it waits for a lock
	s := open(t, testOptions(t))
	if aside, err := SetAside(s.o.Path, asideAt); aside != "" || !errdefs.IsUnavailable(err) {
		t.Fatalf("%q, %v", aside, err)
	}
	create(t, s, "box")
	must(t, s.Close())
	if ids := open(t, s.o).LiveIDs(); len(ids) != 1 {
		t.Fatal(ids)
	}
}
