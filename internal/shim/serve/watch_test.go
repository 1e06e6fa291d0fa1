package serve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/shim/workertest"
)

// watching is a watch and what it told.
type watching struct {
	net.Conn
	t    testing.TB
	data *channel.DataReader
	rest []channel.Change
}

func watch(t testing.TB, w *workertest.Worker, path string, recursive bool) *watching {
	t.Helper()
	conn := w.Call(channel.Call{Op: channel.Watch, Path: path, Recursive: recursive})
	r := channel.NewReader(conn)
	must(t, r.ReadAnswer(channel.Result, nil))
	return &watching{Conn: conn, t: t, data: channel.NewDataReader(r)}
}

func (w *watching) next() (channel.Change, error) {
	for len(w.rest) == 0 {
		_ = w.SetReadDeadline(time.Now().Add(patience))
		data, err := w.data.Next()
		if err != nil {
			return channel.Change{}, err
		}
		must(w.t, json.Unmarshal(data, &w.rest))
	}
	c := w.rest[0]
	w.rest = w.rest[1:]
	return c, nil
}

// until reads changes up to one, and returns all.
func (w *watching) until(want channel.Change) (all []string) {
	w.t.Helper()
	for {
		c, err := w.next()
		if err != nil {
			w.t.Fatalf("after %q: %v", all, err)
		}
		all = append(all, strings.TrimSpace(c.Kind+" "+c.Name+" "+c.Old))
		if c == want {
			return all
		}
	}
}

func TestAWatchTellsWhatHappens(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	w := workertest.Start(t, "", dir)
	must(t, os.MkdirAll(dir+"/sub/deep", 0o755))
	in := watch(t, w, ".", true)
	expect := func(want ...string) {
		t.Helper()
		must(t, os.Mkdir(dir+"/mark", 0o755))
		got := in.until(channel.Change{Kind: channel.Created, Name: "mark"})
		got = got[:len(got)-1]
		slices.Sort(got) // directories have no order
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		must(t, os.Remove(dir+"/mark"))
		in.until(channel.Change{Kind: channel.Removed, Name: "mark"})
	}
	must(t, os.WriteFile(dir+"/sub/deep/f", []byte("x"), 0o644))
	expect("created sub/deep/f", "written sub/deep/f")
	must(t, os.Chmod(dir+"/sub/deep/f", 0o600))
	expect("attributes sub/deep/f")
	must(t, os.Rename(dir+"/sub/deep/f", dir+"/g"))
	expect("renamed g sub/deep/f")
	must(t, os.Rename(dir+"/sub", dir+"/moved"), os.WriteFile(dir+"/moved/deep/h", nil, 0o644))
	expect("renamed moved sub", "created moved/deep/h")
	must(t, os.Rename(dir+"/moved", outside+"/gone"))
	expect("removed moved")
	must(t, os.WriteFile(outside+"/gone/deep/unseen", nil, 0o644))
	expect()
	must(t, os.Rename(outside+"/gone", dir+"/back"))
	expect("created back", "created back/deep", "created back/deep/h", "created back/deep/unseen")
	must(t, os.Remove(dir+"/g"))
	expect("removed g")
	must(t, os.Rename(dir+"/back", outside+"/again")) // and nothing after it
	in.until(channel.Change{Kind: channel.Removed, Name: "back"})
	must(t, os.RemoveAll(dir))
	for {
		if _, err := in.next(); err != nil {
			reason(t, err, channel.FileNotFound)
			break
		}
	}
}

func TestAWatchOfOneDirectory(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	in := watch(t, w, dir, false)
	must(t, os.MkdirAll(dir+"/a/b", 0o755), os.WriteFile(dir+"/a/b/c", nil, 0o644), os.WriteFile(dir+"/end", nil, 0o644))
	if got := in.until(channel.Change{Kind: channel.Created, Name: "end"}); !slices.Equal(got, []string{"created a", "created end"}) {
		t.Errorf("%q", got)
	}
	for range 20 {
		ends := watch(t, w, dir, true)
		must(t, ends.Conn.(*net.UnixConn).CloseWrite())
		if _, err := io.Copy(io.Discard, ends); err != nil { // it ends once the worker has closed everything
			t.Fatal(err)
		}
		ends.Close()
	}
	if n := inotifies(t, w.Cmd.Process.Pid); n != 1 {
		t.Errorf("the worker has %d instances of inotify for one watch", n)
	}
	conn := w.Call(channel.Call{Op: channel.Watch, Path: dir + "/end"})
	reason(t, channel.NewReader(conn).ReadAnswer(channel.Result, nil), channel.FileType)
}

// inotifies counts the instances of inotify that a process has open.
func inotifies(t testing.TB, pid int) (n int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	open, err := os.ReadDir(dir)
	must(t, err)
	for _, fd := range open {
		if what, _ := os.Readlink(dir + fd.Name()); what == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

// mirror is what a client knows of the names in a tree.
type mirror map[string]bool

// apply looks at the name that a change tells. After a rename the client looks at both names.
func (m mirror) apply(dir string, c channel.Change) {
	for _, name := range []string{c.Name, c.Old} {
		if name == "" && c.Kind != channel.Overflow {
			continue
		}
		for known := range m {
			if known == name || name == "" || strings.HasPrefix(known, name+"/") {
				delete(m, known)
			}
		}
		maps.Copy(m, tree(dir, name))
	}
}

// tree lists the names below dir/name, and name itself.
func tree(dir, name string) mirror {
	m := mirror{}
	_ = filepath.WalkDir(filepath.Join(dir, name), func(path string, _ fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, path); err == nil && rel != "." {
			m[rel] = true
		}
		return nil
	})
	return m
}

// TestAWatchUnderAStormLosesNothing changes a tree at random while a client follows, sometimes so slowly that the kernel drops events.
func TestAWatchUnderAStormLosesNothing(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		dir := t.TempDir()
		w := workertest.Start(t, "", dir)
		in := watch(t, w, dir, true)
		storm(t, dir, rand.New(rand.NewPCG(1, uint64(round))), 3000)
		if round%4 == 3 { // more than the queue of inotify and the socket hold
			for range 10 {
				for i := range 1000 {
					must(t, os.WriteFile(fmt.Sprintf("%s/%s-%04d", dir, strings.Repeat("n", 200), i), nil, 0o644))
				}
				for i := range 1000 {
					must(t, os.Remove(fmt.Sprintf("%s/%s-%04d", dir, strings.Repeat("n", 200), i)))
				}
			}
		}
		must(t, os.Mkdir(dir+"/the end", 0o755))
		m, overflow := mirror{}, false
		for !m["the end"] {
			c, err := in.next()
			must(t, err)
			m.apply(dir, c)
			overflow = overflow || c.Kind == channel.Overflow
		}
		if round%4 == 3 && !overflow {
			t.Error("no overflow")
		}
		// An overflow just before the end may repeat a few changes.
		end := fmt.Sprintf("really %d", round)
		must(t, os.Mkdir(dir+"/"+end, 0o755))
		for !m[end] {
			c, err := in.next()
			must(t, err)
			m.apply(dir, c)
		}
		want := tree(dir, "")
		for name := range want {
			if !m[name] {
				t.Errorf("round %d: %s is not known", round, name)
			}
		}
		for name := range m {
			if !want[name] {
				t.Errorf("round %d: %s is gone", round, name)
			}
		}
		in.Close()
		if t.Failed() {
			return
		}
	}
}

// storm makes, renames and removes files and directories at random.
func storm(t testing.TB, dir string, r *rand.Rand, steps int) {
	t.Helper()
	name := func() string {
		parts := make([]string, 1+r.IntN(4))
		for i := range parts {
			parts[i] = string(rune('a' + r.IntN(4)))
		}
		return dir + "/" + strings.Join(parts, "/")
	}
	for range steps {
		switch r.IntN(5) { // most fail, because something is missing or there: so be it
		case 0:
			_ = os.MkdirAll(name(), 0o755)
		case 1:
			_ = os.WriteFile(name(), []byte("x"), 0o644)
		case 2, 3:
			_ = unix.Renameat2(unix.AT_FDCWD, name(), unix.AT_FDCWD, name(), unix.RENAME_NOREPLACE)
		case 4:
			if r.IntN(4) == 0 {
				_ = os.RemoveAll(name())
			} else {
				_ = os.Remove(name())
			}
		}
	}
}

func TestAWatchEndsWithItsClient(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	in := watch(t, w, dir, true)
	must(t, in.Conn.(*net.UnixConn).CloseWrite())
	if _, err := in.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
}
