package diskspace

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agbox/agbox/internal/testing/smalldisk"
)

const mib = 1 << 20

func TestDecide(t *testing.T) {
	marks := Marks{Low: 100, Ballast: 40}
	roomy := Reading{Total: 2000, Free: 1000, Inodes: 100_000, FreeInodes: 90_000, Ballast: 40}
	for _, c := range []struct {
		name    string
		change  func(*Reading)
		wasLow  bool
		low, do bool
	}{
		{"room for everything", func(*Reading) {}, false, false, false},
		{"at the mark", func(r *Reading) { r.Free = 100 }, false, false, false},
		{"below the mark", func(r *Reading) { r.Free = 99 }, false, true, false},
		{"a little above the mark it stays low", func(r *Reading) { r.Free = 124 }, true, true, false},
		{"well above the mark it ends", func(r *Reading) { r.Free = 125 }, true, false, false},
		{"released, and full", func(r *Reading) { r.Free, r.Ballast = 0, 0 }, true, true, false},
		{"what the ballast gave back is no room", func(r *Reading) { r.Free, r.Ballast = 139, 0 }, true, true, false},
		{"room for the ballast above the mark", func(r *Reading) { r.Free, r.Ballast = 140, 0 }, true, true, true},
		{"a ballast that was cut is completed", func(r *Reading) { r.Ballast = 39 }, false, true, true},
		{"a quota that the file system does not show", func(r *Reading) { r.Ballast = 0 }, false, true, true},
		{"a ballast that is larger than wanted", func(r *Reading) { r.Ballast = 50 }, false, false, false},
		{"no inodes", func(r *Reading) { r.FreeInodes = 255 }, false, true, false},
		{"no inodes, no ballast", func(r *Reading) { r.FreeInodes, r.Ballast = 0, 0 }, true, true, false},
		{"a file system without inodes", func(r *Reading) { r.Inodes, r.FreeInodes = 0, 0 }, false, false, false},
		{"a small file system with few inodes", func(r *Reading) { r.Inodes, r.FreeInodes = 1000, 60 }, false, false, false},
	} {
		r := roomy
		c.change(&r)
		if got := Decide(marks, r, c.wasLow); got != (Verdict{Low: c.low, MakeBallast: c.do}) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestDefaultsDependOnTheDiskSize(t *testing.T) {
	for _, c := range []struct{ total, low, reserve int64 }{
		{4 * mib, 4 * mib / 20, mib / 2},
		{48 * mib, 48 * mib / 20, 48 * mib / 32},
		{10 << 30, 512 * mib, 64 * mib},
		{4 << 40, 512 * mib, 64 * mib},
	} {
		if low, reserve := LowWater(c.total), Reserve(c.total); low != c.low || reserve != c.reserve {
			t.Errorf("%d: %d and %d", c.total, low, reserve)
		}
	}
}

// smallDisk mounts a small file system.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	smalldisk.Mount(t, dir, "size="+size)
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWatcher(dir string) *Watcher {
	return New(Options{
		Places:  []Place{{Name: "data", Words: "of the data directory", Path: dir}},
		Ballast: filepath.Join(dir, "ballast"), Logger: slog.New(slog.DiscardHandler),
		Observe: func(string, int64, bool) {}, Released: func() {},
	})
}

// TestADiskFillsAndEmpties runs through a whole cycle.
func TestADiskFillsAndEmpties(t *testing.T) {
	dir := smallDisk(t, "32m")
	w := newWatcher(dir)
	if why := w.NoRoom(); why != "" || w.ballast.held() < mib {
		t.Fatalf("%q, the ballast holds %d", why, w.ballast.held())
	}
	filler := smalldisk.Fill(t, dir)
	w.Check()
	if why := w.NoRoom(); !strings.Contains(why, "of the data directory has 0B left, less than disk.low_water (1.6MiB)") {
		t.Fatal(why)
	}
	for left := int64(mib / 2); left >= 0; left -= leastPiece {
		if !w.MakeRoom() || w.ballast.held() != left {
			t.Fatalf("%d bytes are left, want %d", w.ballast.held(), left)
		}
	}
	if w.MakeRoom() {
		t.Fatal("more was released than existed")
	}
	must(t, os.WriteFile(filepath.Join(dir, "commit"), make([]byte, mib), 0o600))
	w.Check()
	if w.NoRoom() == "" || w.ballast.held() != 0 {
		t.Fatal("there is no room yet")
	}
	must(t, os.Remove(filler))
	w.Check()
	if why := w.NoRoom(); why != "" || w.ballast.held() < mib {
		t.Fatalf("with room again: %q, the ballast holds %d", why, w.ballast.held())
	}
}

// TestWhatACrashLeavesOfTheBallast: a missing, empty, cut, sparse or complete piece.
func TestWhatACrashLeavesOfTheBallast(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, piece string){
		"missing":           func(*testing.T, string) {},
		"no piece":          func(t *testing.T, piece string) { must(t, os.Remove(piece)) },
		"empty":             func(t *testing.T, piece string) { must(t, os.WriteFile(piece, nil, 0o600)) },
		"cut":               func(t *testing.T, piece string) { must(t, os.WriteFile(piece, make([]byte, 300<<10), 0o600)) },
		"sparse":            func(t *testing.T, piece string) { must(t, os.Truncate(piece, 4*mib)) },
		"larger":            func(t *testing.T, piece string) { must(t, os.WriteFile(piece, make([]byte, 3*mib), 0o600)) },
		"a file, no pieces": func(t *testing.T, piece string) { must(t, os.Remove(piece)); inTheWay(t, filepath.Dir(piece)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t, "32m")
			if name != "missing" {
				must(t, os.Mkdir(filepath.Join(dir, "ballast"), 0o700))
				must(t, os.WriteFile(filepath.Join(dir, "ballast", "000"), nil, 0o600))
			}
			leave(t, filepath.Join(dir, "ballast", "000"))
			w := newWatcher(dir)
			if why := w.NoRoom(); why != "" || w.ballast.held() < mib {
				t.Errorf("%q, the ballast holds %d", why, w.ballast.held())
			}
		})
	}
}

// inTheWay puts a file in place of an empty directory.
func inTheWay(t *testing.T, path string) {
	t.Helper()
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, make([]byte, mib), 0o600))
}

// TestAnUnfinishedBallastKeepsItsPieces: other writers wait for the same space, so acquired pieces are not released.
func TestAnUnfinishedBallastKeepsItsPieces(t *testing.T) {
	b := ballast{path: filepath.Join(smallDisk(t, "4m"), "ballast")}
	if err := b.make(8 * mib); !isFull(err) {
		t.Fatal(err)
	}
	if held := b.held(); held < 3*mib || held%leastPiece != 0 {
		t.Errorf("it holds %d bytes", held)
	}
}

func TestFullDiskAtTheStartIsLow(t *testing.T) {
	dir := smallDisk(t, "8m")
	filler := smalldisk.Fill(t, dir)
	w := newWatcher(dir)
	if w.NoRoom() == "" || w.MakeRoom() {
		t.Fatal("there is neither room nor ballast")
	}
	if _, err := os.Lstat(filepath.Join(dir, "ballast")); err == nil {
		t.Error("an unfinished ballast takes the rest of the disk")
	}
	must(t, os.Remove(filler))
	w.Check()
	if why := w.NoRoom(); why != "" {
		t.Error(why)
	}
}

// TestAReleaseOvertakesTheMaking also serves the race detector.
func TestAReleaseOvertakesTheMaking(t *testing.T) {
	b := ballast{path: filepath.Join(t.TempDir(), "ballast")}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { must(t, b.make(16*mib)) })
		b.release()
		wg.Wait()
	}
	for b.release() { // each takes one piece
	}
	if held := b.held(); held != 0 {
		t.Errorf("%d bytes are held after the release", held)
	}
}

func TestMissingPlaceIsNotLow(t *testing.T) {
	w := newWatcher(filepath.Join(t.TempDir(), "later"))
	if why := w.NoRoom(); why != "" || w.ReserveBytes() != 0 {
		t.Error(why)
	}
}
