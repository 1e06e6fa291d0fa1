package hostfiles

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// many creates n small files, in directories of perDir.
func many(tb testing.TB, n, perDir, size int) string {
	tb.Helper()
	root := tree(tb)
	body := make([]byte, size)
	dir := -1
	for i := range n {
		if i%perDir == 0 {
			unix.Close(dir)
			path := fmt.Sprintf("%s/d%d", root, i/perDir)
			must(tb, os.Mkdir(path, 0o755))
			var err error
			dir, err = unix.Open(path, unix.O_PATH|unix.O_DIRECTORY, 0)
			must(tb, err)
		}
		fd, err := unix.Openat(dir, fmt.Sprintf("file-%d", i), unix.O_CREAT|unix.O_WRONLY, 0o644)
		must(tb, err)
		if size > 0 {
			_, err = unix.Write(fd, body)
			must(tb, err)
		}
		unix.Close(fd)
	}
	unix.Close(dir)
	return root
}

// heapMeter reads a stream and records the largest heap size.
type heapMeter struct {
	writes int
	peak   uint64
}

func (m *heapMeter) Write(b []byte) (int, error) {
	if m.writes++; m.writes%2000 == 0 {
		m.peak = max(m.peak, heap())
	}
	return len(b), nil
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// One directory with all files is the worst case for an implementation that reads it at once.
func TestPackMemoryIsConstant(t *testing.T) {
	src := many(t, 100_000, 100_000, 0)
	runtime.GC()
	before, m := heap(), &heapMeter{}
	must(t, Pack(t.Context(), m, Copy{Source: src, Target: "/t", Exclude: []string{"*.o", "**/x/*.[ch]"}}))
	if m.writes < 100_000 {
		t.Errorf("only %d writes", m.writes)
	}
	if growth := int64(m.peak) - int64(before); growth > 16<<20 {
		t.Errorf("the heap grew by %d bytes", growth)
	}
}

// BenchmarkPack packs 200,000 files of 1 KiB, and runs tar on them for comparison.
func BenchmarkPack(b *testing.B) {
	src := many(b, 200_000, 1000, 1024)
	b.Run("agbox", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must(b, Pack(b.Context(), io.Discard, Copy{Source: src, Target: "/t"}))
		}
	})
	b.Run("agbox with excludes", func(b *testing.B) {
		for b.Loop() {
			must(b, Pack(b.Context(), io.Discard, Copy{Source: src, Target: "/t", Exclude: []string{"*.o", "/build", "**/x/*.[ch]", "!keep.o"}}))
		}
	})
	b.Run("tar", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command("tar", "-C", src, "--format=pax", "-cf", "-", ".")
			cmd.Stdout = discard{} // a pipe, as tar skips the contents when it writes to /dev/null
			must(b, cmd.Run())
		}
	})
}

// discard hides the type of io.Discard, so that exec creates a pipe.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
