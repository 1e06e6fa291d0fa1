package recordfile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func TestWhatIsHandedOverIsReadBack(t *testing.T) {
	d, root := newDir(t)
	d.Sandbox(record("box", 1))
	wantOnly(t, root, record("box", 1))
	a, b := execRecord("box", "a"), execRecord("box", "b")
	for i, execs := range [][]*storev1.ExecRecord{{a}, {a, b}, {ended(a), b}, {ended(a), ended(b)}} {
		d.Sandbox(record("box", uint64(i+2)))
		d.Exec("box", execs[min(i, 1)*(i%2)])
		if i == 3 {
			d.Exec("box", execs[1])
		}
		wantOnly(t, root, record("box", uint64(i+2)), execs...)
	}
	d.Flush()
	wantOnly(t, root, record("box", 5), ended(a), ended(b))
}

func TestFilesAndDirectoriesAreOursAlone(t *testing.T) {
	d, root := newDir(t)
	d.Sandbox(record("box", 1))
	d.Exec("box", execRecord("box", "a"))
	for name, want := range map[string]fs.FileMode{"": 0o700, execjournal.RecordName: 0o600, execjournal.ExecsName: 0o600} {
		if st, err := os.Stat(fileOf(root, "box", name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%q: %v, %v", name, st.Mode(), err)
		}
	}
	if st, err := os.Stat(root); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("root: %v, %v", st.Mode(), err)
	}
	p, err := execjournal.New(filepath.Join(root, "..", "logs"), root).Prepare("box")
	must(t, err)
	if filepath.Dir(p.Ctl) != filepath.Dir(fileOf(root, "box", "record")) {
		t.Errorf("%s is another directory", p.Ctl)
	}
	wantOnly(t, root, record("box", 1), execRecord("box", "a"))
}

func TestGoneLeavesNothing(t *testing.T) {
	d, root := newDir(t)
	d.Sandbox(record("box", 1))
	d.Exec("box", execRecord("box", "a"))
	must(t, os.WriteFile(fileOf(root, "box", execjournal.NewExecsName), nil, 0o600))
	d.Gone("box")
	d.Gone("never there")
	d.Flush()
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
		t.Errorf("left are %v, %v", entries, err)
	}
	if len(d.boxes)+len(d.active)+len(d.failing) != 0 {
		t.Errorf("kept are %v, %v, %v", d.boxes, d.active, d.failing)
	}
}

func TestGoneLeavesToExecjournalWhatIsNotOurs(t *testing.T) {
	d, root := newDir(t)
	d.Sandbox(record("box", 1))
	must(t, os.Mkdir(fileOf(root, "box", "ctl"), 0o700))
	d.Gone("box")
	if _, err := os.Stat(fileOf(root, "box", execjournal.RecordName)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Stat(fileOf(root, "box", "ctl")); err != nil {
		t.Error(err)
	}
}

func TestOneThatIsBeingDeletedGetsNoNewDirectory(t *testing.T) {
	d, root := newDir(t)
	d.Sandbox(record("box", 1))
	d.Sandbox(leaving("box"))
	wantOnly(t, root, leaving("box"))
	journals := execjournal.New(filepath.Join(root, "..", "logs"), root)
	must(t, journals.Remove("box"))
	d.Sandbox(leaving("box"))
	d.Exec("box", execRecord("box", "a"))
	d.Flush()
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
		t.Errorf("left are %v, %v", entries, err)
	}
}

func TestARemovedDirectoryIsMadeAgain(t *testing.T) {
	d, root := newDir(t)
	d.Sandbox(record("box", 1))
	d.Exec("box", execRecord("box", "a"))
	must(t, os.RemoveAll(root))
	d.Flush()
	d.Sandbox(record("box", 2))
	d.Exec("box", execRecord("box", "b"))
	wantOnly(t, root, record("box", 2), execRecord("box", "b"))
	must(t, os.Remove(fileOf(root, "box", execjournal.RecordName)))
	must(t, os.Truncate(fileOf(root, "box", execjournal.ExecsName), 0))
	d.Sandbox(record("box", 3))
	d.Exec("box", execRecord("box", "c"))
	wantOnly(t, root, record("box", 3), execRecord("box", "c"))
}

func TestAnotherProcessGoesOnWithTheFiles(t *testing.T) {
	d, root := newDir(t)
	d.Sandbox(record("box", 1))
	d.Exec("box", execRecord("box", "a"))
	d.Exec("box", execRecord("box", "b"))
	record1, execs := fileOf(root, "box", execjournal.RecordName), fileOf(root, "box", execjournal.ExecsName)
	was := []int64{sizeOf(t, record1), sizeOf(t, execs)}

	d = New(root, quiet(), nil)
	d.Sandbox(record("box", 1)) // as MirrorAll does
	d.Exec("box", execRecord("box", "a"))
	d.Exec("box", execRecord("box", "b"))
	if now := []int64{sizeOf(t, record1), sizeOf(t, execs)}; now[0] != was[0] || now[1] != was[1] {
		t.Errorf("sizes are %v, were %v", now, was)
	}
	d.Exec("box", ended(execRecord("box", "a")))
	wantOnly(t, root, record("box", 1), ended(execRecord("box", "a")), execRecord("box", "b"))
	for d.Flush() { // until nothing is left of what only the start needs
	}
	if b := d.boxes["box"]; b.execs.seen != nil || b.record.seen != nil {
		t.Error("the hashes are kept")
	}
}

// What is in the way is retried, in the newest form only, and told once.
func TestWhatCantBeWrittenIsTriedAgain(t *testing.T) {
	root := filepath.Join(t.TempDir(), "s")
	var errs []error
	var log strings.Builder
	d := New(root, newLogger(&log), func(err error) { errs = append(errs, err) })
	d.Sandbox(record("box", 1))
	wall := fileOf(root, "box", execjournal.RecordName)
	must(t, os.Remove(wall))
	must(t, os.Mkdir(wall, 0o700))
	must(t, os.Mkdir(fileOf(root, "box", execjournal.ExecsName), 0o700))
	for i := range 3 {
		d.Sandbox(record("box", uint64(i+2)))
		d.Exec("box", execRecord("box", "a"))
	}
	d.Exec("box", execRecord("box", "b"))
	d.Exec("box", ended(execRecord("box", "a")))
	if b := d.boxes["box"]; b.lateRecord.GetLastSequence() != 4 || len(b.lateExecs) != 2 {
		t.Errorf("kept are %v, %v", b.lateRecord, b.lateExecs)
	}
	if more := d.Flush(); !more || len(errs) < 8 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("more %v, %d errors, log %s", more, len(errs), log.String())
	}
	must(t, os.Remove(wall))
	must(t, os.Remove(fileOf(root, "box", execjournal.ExecsName)))
	for d.Flush() {
	}
	wantOnly(t, root, record("box", 4), ended(execRecord("box", "a")), execRecord("box", "b"))
	if strings.Count(log.String(), "\n") != 2 || d.boxes["box"].lateRecord != nil || len(d.failing) != 0 {
		t.Errorf("log %s", log.String())
	}
}

func TestGoneIsTriedAgain(t *testing.T) {
	root := filepath.Join(t.TempDir(), "s")
	failures := 0
	d := New(root, quiet(), func(error) { failures++ })
	d.Sandbox(record("box", 1))
	execs := fileOf(root, "box", execjournal.ExecsName)
	must(t, os.MkdirAll(filepath.Join(execs, "x"), 0o700))
	d.Gone("box")
	if more := d.Flush(); !more || failures != 2 {
		t.Fatalf("more %v, %d failures", more, failures)
	}
	must(t, os.RemoveAll(execs))
	if more := d.Flush(); more {
		t.Error("there is more")
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
		t.Errorf("left are %v, %v", entries, err)
	}
}

func TestRunSyncsWithinHalfASecondAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDir(t)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { d.Run(ctx); close(done) }()
		synced := func() bool {
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, b := range d.boxes {
				b.mu.Lock()
				dirty := b.record.dirty || b.execs.dirty || b.record.entry || b.made
				b.mu.Unlock()
				if dirty {
					return false
				}
			}
			return len(d.active) == 0
		}
		for i := range 3 {
			d.Sandbox(record("box", uint64(i+1)))
			if synced() {
				t.Error("it is synced by the caller")
			}
			time.Sleep(500 * time.Millisecond)
			if !synced() {
				t.Error("it is not synced after half a second")
			}
		}
		d.Exec("box", execRecord("box", "a"))
		stop()
		<-done
		if !synced() {
			t.Error("it is not synced at the end")
		}
	})
}

func TestManySandboxesAtOnceWhileItIsFlushed(t *testing.T) {
	d, root := newDir(t)
	ctx, stop := context.WithCancel(context.Background())
	var flusher, writers sync.WaitGroup
	flusher.Go(func() { d.Run(ctx) })
	flusher.Go(func() {
		for ctx.Err() == nil {
			d.Flush()
		}
	})
	const boxes, changes = 40, 25
	for i := range boxes {
		writers.Go(func() {
			id := boxID(i)
			for n := range changes {
				d.Sandbox(record(id, uint64(n+1)))
				d.Exec(id, execRecord(id, execID(n)))
			}
			if i%2 == 1 {
				d.Gone(id)
			}
		})
	}
	writers.Wait()
	stop()
	flusher.Wait()
	found, problems := read(t, root)
	if len(found) != boxes/2 || len(problems) != 0 {
		t.Fatalf("%d found, problems %v", len(found), problems)
	}
	for id, f := range found {
		if f.Record.GetLastSequence() != changes || len(f.Execs) != changes {
			t.Errorf("%s: %v with %d execs", id, f.Record, len(f.Execs))
		}
	}
	if entries, _ := os.ReadDir(root); len(entries) != boxes/2 {
		t.Errorf("%d directories", len(entries))
	}
}

// One that fails does not keep the others waiting, and is not tried all the time.
func TestRunTriesAgainOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := filepath.Join(t.TempDir(), "s")
		errs := 0
		d := New(root, quiet(), func(error) { errs++ })
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { d.Run(ctx); close(done) }()
		must(t, os.MkdirAll(fileOf(root, "bad", execjournal.RecordName), 0o700))
		d.Sandbox(record("bad", 1))
		for range 10 {
			d.Sandbox(record("good", 1))
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			if b := d.box("good"); b.record.dirty || b.made {
				t.Error("it is not synced after half a second")
			}
		}
		if errs < 5 || errs > 6 {
			t.Errorf("%d errors in five seconds", errs)
		}
		must(t, os.Remove(fileOf(root, "bad", execjournal.RecordName)))
		stop()
		<-done
		if found, problems := read(t, root); len(found) != 2 || len(problems) != 0 {
			t.Errorf("found %v, problems %v", found, problems)
		}
	})
}
