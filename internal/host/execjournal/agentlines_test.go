package execjournal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
)

// readAll reads as a caller does, and fails when it takes more than steps calls.
func readAll(t testing.TB, d *Dir, src Source, from int64, maxBytes, steps int) ([]string, int64) {
	t.Helper()
	var all []string
	for range steps {
		lines, next, err := d.ReadLines("box1", "a.1", src, from, maxBytes, false)
		must(t, err)
		if next == from && len(lines) == 0 {
			return all, next
		}
		for _, l := range lines {
			text := string(l.Data)
			if l.Cut {
				text = fmt.Sprintf("%s... of %d", text[:3], len(text))
			}
			all = append(all, text)
		}
		from = next
	}
	t.Fatalf("still reading after %d calls, at %d", steps, from)
	return nil, 0
}

func agentFiles(t testing.TB, p Paths) map[Source]string {
	t.Helper()
	dir := filepath.Join(p.Out, AgentsDir)
	must(t, os.Mkdir(dir, 0o755))
	return map[Source]string{
		Stdout: filepath.Join(p.Logs, StdoutName("a.1")),
		Outbox: filepath.Join(dir, WordsName("a.1")),
	}
}

func TestReadLinesReturnsCompleteLinesOnly(t *testing.T) {
	d, p := newDir(t)
	for _, src := range []Source{Stdout, Outbox} {
		if lines, next, err := d.ReadLines("box1", "a.1", src, 0, 100, false); len(lines) != 0 || next != 0 || err != nil {
			t.Errorf("missing %v: %v, %d, %v", src, lines, next, err)
		}
	}
	for src, path := range agentFiles(t, p) {
		must(t, os.WriteFile(path, []byte("one\n\n\xfftwo\r\nthr"), 0o644))
		all, next := readAll(t, d, src, 0, 1, 5)
		if !slices.Equal(all, []string{"one", "", "\xfftwo\r"}) || next != 11 {
			t.Errorf("%v: %q, %d", src, all, next)
		}
		rest, end, err := d.ReadLines("box1", "a.1", src, next, 1, true)
		if len(rest) != 1 || string(rest[0].Data) != "thr" || end != 14 || err != nil {
			t.Errorf("%v: %v, %d, %v", src, rest, end, err)
		}
		if rest, _, err := d.ReadLines("box1", "a.1", src, end, 1, true); len(rest) > 0 || err != nil {
			t.Errorf("%v: %v, %v", src, rest, err)
		}
		must(t, os.WriteFile(path, []byte("one\n\n\xfftwo\r\nthree\n"), 0o644))
		if all, _ := readAll(t, d, src, next, 1, 5); !slices.Equal(all, []string{"three"}) {
			t.Errorf("%v: %q", src, all)
		}
	}
}

func TestReadLinesCutsLongLines(t *testing.T) {
	d, p := newDir(t)
	path := agentFiles(t, p)[Outbox]
	long := func(c string, n int) string { return strings.Repeat(c, n) + "\n" }
	must(t, os.WriteFile(path, []byte(long("a", MaxLineBytes)+long("b", MaxLineBytes+1)+long("c", 20<<20)+"d\n"), 0o644))
	all, next := readAll(t, d, Outbox, 0, 100, 10)
	cut := func(c string) string { return fmt.Sprintf("%s... of %d", strings.Repeat(c, 3), MaxLineBytes) }
	if len(all) != 4 || all[0] != strings.Repeat("a", MaxLineBytes) || !slices.Equal(all[1:], []string{cut("b"), cut("c"), "d"}) {
		t.Errorf("%d lines, %d", len(all), next)
	}
}

// A long line that is still being written is returned once, cut, and its rest is skipped as it arrives.
func TestReadLinesOfAGrowingLine(t *testing.T) {
	d, p := newDir(t)
	path := agentFiles(t, p)[Stdout]
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	var all []string
	var at int64
	add := func(text string) {
		_, err := f.WriteString(text)
		must(t, err)
		var got []string
		got, at = readAll(t, d, Stdout, at, 1, 10)
		all = append(all, got...)
	}
	add(strings.Repeat("x", MaxLineBytes))
	if len(all) != 0 {
		t.Error("a line was returned that may still end")
	}
	add("yy")
	for range 5 {
		add(strings.Repeat("z", 100_000))
	}
	add("end\nnext\n")
	if len(all) != 2 || all[1] != "next" || all[0] != fmt.Sprintf("xxx... of %d", MaxLineBytes) {
		t.Errorf("%.50q", all)
	}
	if rest, _, err := d.ReadLines("box1", "a.1", Stdout, at, 1, true); len(rest) > 0 || err != nil {
		t.Errorf("%v, %v", rest, err)
	}
}

// A file may grow and be read in any pieces: its lines are returned once, in order.
func TestReadLinesInAnyPieces(t *testing.T) {
	d, p := newDir(t)
	path := agentFiles(t, p)[Outbox]
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		text := make([]byte, rnd.IntN(2000))
		for i := range text {
			text[i] = "ab\n"[rnd.IntN(3)]
		}
		var want []string
		if i := bytes.LastIndexByte(text, '\n'); i >= 0 {
			want = strings.Split(string(text[:i]), "\n")
		}
		var got []string
		var at int64
		for n := 0; n < len(text); {
			n = min(len(text), n+1+rnd.IntN(500))
			must(t, os.WriteFile(path, text[:n], 0o644))
			var more []string
			more, at = readAll(t, d, Outbox, at, 1, 100)
			got = append(got, more...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q: %q", text, got)
		}
	}
}

func TestReadLinesOfHostileFiles(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("precious\n"), 0o644))
	type hostile struct {
		name string
		make func(path string)
	}
	for _, h := range []hostile{
		{"symlink", func(path string) { must(t, os.Symlink(secret, path)) }},
		{"dangling symlink", func(path string) { must(t, os.Symlink("/nowhere", path)) }},
		{"FIFO", func(path string) { must(t, syscall.Mkfifo(path, 0o666)) }},
		{"directory", func(path string) { must(t, os.Mkdir(path, 0o755)) }},
		{"device", func(path string) {
			if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|5); err != nil { // /dev/zero
				must(t, syscall.Mkfifo(path, 0o666))
			}
		}},
		{"symlink as the directory", func(path string) {
			dir := filepath.Dir(path)
			if filepath.Base(dir) != AgentsDir {
				dir = path
			} else {
				must(t, os.Remove(dir))
			}
			must(t, os.Symlink(filepath.Dir(secret), dir))
			must(t, os.WriteFile(filepath.Join(filepath.Dir(secret), filepath.Base(path)), []byte("precious\n"), 0o644))
		}},
		{"file as the directory", func(path string) {
			if dir := filepath.Dir(path); filepath.Base(dir) == AgentsDir {
				must(t, os.Remove(dir))
				path = dir
			}
			must(t, syscall.Mkfifo(path, 0o666))
		}},
	} {
		for _, src := range []Source{Stdout, Outbox} {
			t.Run(h.name+" as "+src.String(), func(t *testing.T) {
				d, p := newDir(t)
				h.make(agentFiles(t, p)[src])
				for _, from := range []int64{0, 5} {
					lines, next, err := d.ReadLines("box1", "a.1", src, from, 100, false)
					if !errors.Is(err, ErrMalformed) || len(lines) != 0 || next != from {
						t.Errorf("from %d: %v, %d, %v", from, lines, next, err)
					}
				}
				must(t, d.AddAgentWatch("box1", "a.1"))
			})
		}
	}
}

func TestReadLinesOfTruncatedOrRemovedFiles(t *testing.T) {
	d, p := newDir(t)
	path := agentFiles(t, p)[Outbox]
	must(t, os.WriteFile(path, []byte("one\ntwo\nthree\n"), 0o644))
	_, at := readAll(t, d, Outbox, 0, 100, 5)
	must(t, os.Truncate(path, 6)) // one\ntw
	lines, next, err := d.ReadLines("box1", "a.1", Outbox, at, 100, false)
	if !errors.Is(err, ErrMalformed) || len(lines) != 0 || next != 6 {
		t.Fatalf("%v, %d, %v", lines, next, err)
	}
	must(t, os.WriteFile(path, []byte("one\ntw...\nnew\n"), 0o644))
	if all, _ := readAll(t, d, Outbox, next, 100, 5); !slices.Equal(all, []string{"new"}) {
		t.Errorf("%q", all)
	}
	must(t, os.Remove(path))
	if lines, next, err := d.ReadLines("box1", "a.1", Outbox, 14, 100, false); !errors.Is(err, ErrMalformed) || len(lines) != 0 || next != 14 {
		t.Errorf("%v, %d, %v", lines, next, err)
	}
	if _, _, err := d.ReadLines("box1", "a.1", Outbox, -1, 100, false); !errdefs.IsInvalidArgument(err) {
		t.Errorf("%v", err)
	}
}

// A sparse file of an exabyte costs the container nothing. Skipping it must cost the daemon nothing.
func TestReadLinesSkipsHolesAtOnce(t *testing.T) {
	d, p := newDir(t)
	path := agentFiles(t, p)[Outbox]
	must(t, os.WriteFile(path, []byte("one\n"), 0o644))
	const huge = 1 << 43 // ext4 has no larger files
	must(t, os.Truncate(path, huge))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("end\nlast\n")
	must(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	all, next := readAll(t, d, Outbox, 0, 100, 5)
	runtime.ReadMemStats(&after)
	if len(all) != 3 || all[0] != "one" || all[2] != "last" || next != huge+9 {
		t.Errorf("%d lines, %d", len(all), next)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// The same file with a byte in each 64 MiB, which costs the container 4 KiB, must cost the daemon no more than those.
func TestReadLinesSkipsEachHole(t *testing.T) {
	d, p := newDir(t)
	f, err := os.Create(agentFiles(t, p)[Outbox])
	must(t, err)
	defer f.Close()
	_, err = f.Write(bytes.Repeat([]byte("x"), MaxLineBytes+10))
	must(t, err)
	const size = 16 << 30
	for at := int64(maxSkipBytes); at < size; at += maxSkipBytes {
		_, err = f.WriteAt([]byte("x"), at)
		must(t, err)
	}
	_, err = f.WriteAt([]byte("end\nlast\n"), size)
	must(t, err)
	all, next := readAll(t, d, Outbox, 0, 100, 4)
	if len(all) != 2 || all[1] != "last" || next != size+9 {
		t.Errorf("%d lines, %d", len(all), next)
	}
}

// TestShortLinesAreReadInBatches: reading from a file of millions of short lines costs no more than from one of a few.
func TestShortLinesAreReadInBatches(t *testing.T) {
	d, p := newDir(t)
	must(t, os.WriteFile(agentFiles(t, p)[Stdout], bytes.Repeat([]byte("y\n"), 1<<20), 0o644))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const reads = 64
	from := int64(0)
	for range reads {
		lines, next, err := d.ReadLines("box1", "a.1", Stdout, from, 1<<20, false)
		must(t, err)
		if len(lines) != MaxLines || next != from+2*MaxLines {
			t.Fatalf("%d lines from %d to %d", len(lines), from, next)
		}
		from = next
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / reads; each > 1<<20 {
		t.Errorf("%d bytes were allocated for a read of %d", each, 2*MaxLines)
	}
}

// TestLongerLinesFillARead: fewer than MaxLines lines are returned up to maxBytes in one call.
func TestLongerLinesFillARead(t *testing.T) {
	d, p := newDir(t)
	const width = 1000
	line := append(bytes.Repeat([]byte("x"), width-1), '\n')
	must(t, os.WriteFile(agentFiles(t, p)[Stdout], bytes.Repeat(line, 3000), 0o644))
	lines, next, err := d.ReadLines("box1", "a.1", Stdout, 0, 1<<20, false)
	must(t, err)
	if want := (1<<20 + 1) / width; len(lines) != want || next != int64(want*width) {
		t.Errorf("%d lines up to %d, want %d", len(lines), next, want)
	}
}
