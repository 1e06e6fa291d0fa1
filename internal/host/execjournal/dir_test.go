package execjournal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execphase"
)

func newDir(t testing.TB) (*Dir, Paths) {
	t.Helper()
	root := t.TempDir()
	d := New(filepath.Join(root, "logs"), filepath.Join(root, "s"))
	p, err := d.Prepare("box1")
	if err != nil {
		t.Fatal(err)
	}
	return d, p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

func journal(state, nonce string) string {
	return fmt.Sprintf(`{"version":1,"exec_id":"e1","nonce":%q,"state":%q,"exit_code":3}`, nonce, state)
}

func TestPrepareSetsOwnersAndModes(t *testing.T) {
	d, p := newDir(t)
	for path, want := range map[string]os.FileMode{
		filepath.Dir(p.Logs):         0o700 | os.ModeDir,
		p.Logs:                       0o755 | os.ModeDir,
		filepath.Dir(p.Ctl):          0o700 | os.ModeDir,
		p.Ctl:                        0o755 | os.ModeDir,
		filepath.Join(p.Ctl, "exec"): 0o755 | os.ModeDir,
		p.Out:                        0o755 | os.ModeDir,
	} {
		st, err := os.Stat(path)
		must(t, err)
		if st.Mode() != want {
			t.Errorf("%s: %v, want %v", path, st.Mode(), want)
		}
	}
	must(t, os.Chmod(p.Logs, 0o777)) // a container's root can
	must(t, os.Chmod(filepath.Dir(p.Logs), 0o755))
	if _, err := d.Prepare("box1"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{p.Logs, filepath.Dir(p.Logs)} {
		if st, _ := os.Stat(path); st.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: %v", path, st.Mode())
		}
	}
}

// The directories of a sandbox belong to the root of its containers, also for a daemon that does not know yet who that is, and what the daemon
// writes there is theirs.
func TestPrepareForARemappedRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: changes owners")
	}
	root := t.TempDir()
	d := New(filepath.Join(root, "logs"), filepath.Join(root, "s"))
	remapped, known := Owner{100000, 100001}, true
	d.Root = func() (Owner, bool) { return remapped, known }
	prepare := func() Paths {
		t.Helper()
		p, err := d.Prepare("box1")
		must(t, err)
		return p
	}
	p := prepare()
	want := func(uid, gid int, paths ...string) {
		t.Helper()
		for _, path := range paths {
			var st unix.Stat_t
			must(t, unix.Lstat(path, &st))
			if int(st.Uid) != uid || int(st.Gid) != gid {
				t.Errorf("%s belongs to %d:%d, want %d:%d", path, st.Uid, st.Gid, uid, gid)
			}
		}
	}
	dirs := []string{p.Logs, p.Ctl, filepath.Join(p.Ctl, ExecDir), p.Out}
	want(100000, 100001, dirs...)
	want(0, 0, filepath.Dir(p.Logs), filepath.Join(root, "s"))
	must(t, d.Start("box1", Request{ExecID: "e1", Nonce: testNonce, Command: []string{"true"}}))
	_, err := d.AppendInbox("box1", "e1", 0, []byte("x"))
	must(t, err)
	must(t, d.PutSecret("box1", "", "token", Secret{Target: "/t", Value: []byte("v")}))
	for _, name := range []string{RequestName("e1"), InboxName("e1"), SecretName("token")} {
		want(100000, 0, filepath.Join(p.Ctl, ExecDir, name))
	}
	want(100000, 100001, filepath.Join(p.Out, SecretsDir))

	known, remapped = false, Owner{}
	must(t, os.Chown(p.Logs, 100007, 100007)) // a container's root can
	prepare()
	want(100000, 100001, dirs...)
	known = true
	prepare()
	want(0, 0, dirs...)
}

func TestPrepareRefusesForeignDirectories(t *testing.T) {
	root := t.TempDir()
	plain := filepath.Join(root, "plain")
	must(t, os.Mkdir(plain, 0o700))
	must(t, os.Symlink(plain, filepath.Join(root, "link")))
	if _, err := New(filepath.Join(root, "link"), plain).Prepare("box1"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("symlinked root: %v", err)
	}
	if _, err := New("relative", plain).Prepare("box1"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("relative root: %v", err)
	}
	must(t, os.Symlink("/etc", filepath.Join(plain, "box1")))
	if _, err := New(plain, filepath.Join(root, "s")).Prepare("box1"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("symlinked log directory: %v", err)
	}
	for _, id := range []string{"", "..", "a/b", ".hidden"} {
		if _, err := New(plain, plain).Prepare(id); !errdefs.IsInvalidArgument(err) {
			t.Errorf("ID %q: %v", id, err)
		}
	}
	if os.Geteuid() == 0 {
		must(t, os.Chown(plain, 12345, 12345))
		if _, err := New(plain, filepath.Join(root, "s")).Prepare("box2"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("foreign root: %v", err)
		}
	}
}

func TestLook(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, logs string)
		want execphase.Phase
	}{
		{"nothing", func(*testing.T, string) {}, execphase.NotStarted},
		{"ended", func(t *testing.T, logs string) { write(t, logs, "e1.journal", journal("ended", testNonce)) }, execphase.Ended},
		{"closed", func(t *testing.T, logs string) { write(t, logs, "e1.journal", journal("closed", testNonce)) }, execphase.Closed},
		{"started, lock held", func(t *testing.T, logs string) {
			write(t, logs, "e1.journal", journal("started", testNonce))
			hold(t, logs)
		}, execphase.Running},
		{"started, lock free", func(t *testing.T, logs string) {
			write(t, logs, "e1.journal", journal("started", testNonce))
			write(t, logs, "e1.lock", "")
		}, execphase.Lost},
		{"started, no lock", func(t *testing.T, logs string) { write(t, logs, "e1.journal", journal("started", testNonce)) }, execphase.Lost},
		{"started, lock is a FIFO", func(t *testing.T, logs string) {
			write(t, logs, "e1.journal", journal("started", testNonce))
			must(t, syscall.Mkfifo(filepath.Join(logs, "e1.lock"), 0o644))
		}, execphase.Lost},
		{"ended, lock held", func(t *testing.T, logs string) {
			write(t, logs, "e1.journal", journal("ended", testNonce))
			hold(t, logs)
		}, execphase.Ended},
		{"another nonce", func(t *testing.T, logs string) {
			write(t, logs, "e1.journal", journal("ended", strings.Repeat("f", 32)))
		}, execphase.Foreign},
		{"garbage", func(t *testing.T, logs string) { write(t, logs, "e1.journal", "{") }, execphase.Foreign},
		{"empty: closed on a full disk", func(t *testing.T, logs string) { write(t, logs, "e1.journal", "") }, execphase.Closed},
		{"huge", func(t *testing.T, logs string) {
			write(t, logs, "e1.journal", "")
			must(t, os.Truncate(filepath.Join(logs, "e1.journal"), 1<<40))
		}, execphase.Foreign},
		{"symlink to a good one", func(t *testing.T, logs string) {
			write(t, logs, "x", journal("ended", testNonce))
			must(t, os.Symlink("x", filepath.Join(logs, "e1.journal")))
		}, execphase.Foreign},
		{"FIFO", func(t *testing.T, logs string) { must(t, syscall.Mkfifo(filepath.Join(logs, "e1.journal"), 0o644)) }, execphase.Foreign},
		{"directory", func(t *testing.T, logs string) { must(t, os.Mkdir(filepath.Join(logs, "e1.journal"), 0o755)) }, execphase.Foreign},
		{"no directory at all", func(t *testing.T, logs string) { must(t, os.Remove(logs)) }, execphase.NotStarted},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, p := newDir(t)
			c.make(t, p.Logs)
			s, err := d.Status("box1", "e1", testNonce)
			if err != nil || s.Phase != c.want {
				t.Fatalf("%v %q, %v; want %v", s.Phase, s.Problem, err, c.want)
			}
			if (s.Phase == execphase.Foreign) != (s.Problem != "") {
				t.Errorf("problem %q", s.Problem)
			}
			if s.Phase == execphase.Ended && s.Journal.ExitCode != 3 {
				t.Errorf("%+v", s.Journal)
			}
		})
	}
}

func hold(t *testing.T, logs string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(logs, "e1.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
}

// An exec whose supervisor exits between the two reads must never be reported as lost.
func TestLookNeverReportsAnEndAsLost(t *testing.T) {
	d, p := newDir(t)
	for i := range 300 {
		write(t, p.Logs, "e1.journal", journal("started", testNonce))
		f, err := os.OpenFile(filepath.Join(p.Logs, "e1.lock"), os.O_CREATE|os.O_RDWR, 0o644)
		must(t, err)
		must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
		done := make(chan struct{})
		go func() {
			defer close(done)
			write(t, p.Logs, "e1.new", journal("ended", testNonce))
			must(t, os.Rename(filepath.Join(p.Logs, "e1.new"), filepath.Join(p.Logs, "e1.journal")))
			must(t, f.Close())
		}()
		for last := execphase.Running; last != execphase.Ended; {
			s, err := d.Status("box1", "e1", testNonce)
			must(t, err)
			if last = s.Phase; last != execphase.Running && last != execphase.Ended {
				t.Fatalf("round %d: %v", i, last)
			}
		}
		<-done
	}
}

func TestCloseIsAFence(t *testing.T) {
	d, p := newDir(t)
	for range 2 {
		s, err := d.Close("box1", "e1", testNonce, "cancelled\nbefore it began")
		if err != nil || s.Phase != execphase.Closed || s.Journal.Error != "cancelled?before it began" || s.Journal.EndedAtNanos == 0 {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	write(t, p.Logs, "e2.journal", strings.Replace(journal("ended", testNonce), "e1", "e2", 1))
	if s, err := d.Close("box1", "e2", testNonce, "x"); err != nil || s.Phase != execphase.Ended || s.Journal.ExitCode != 3 {
		t.Errorf("after an end: %+v, %v", s, err)
	}
	// A symlink in the way leads to no write outside, and to no result.
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("precious"), 0o600))
	must(t, os.Symlink(victim, filepath.Join(p.Logs, "e3.journal")))
	must(t, os.Symlink(victim, filepath.Join(p.Logs, TempName("e4", "close"))))
	if s, err := d.Close("box1", "e3", testNonce, "x"); err != nil || s.Phase != execphase.Foreign {
		t.Errorf("symlink in its place: %+v, %v", s, err)
	}
	if s, err := d.Close("box1", "e4", testNonce, "x"); err != nil || s.Phase != execphase.Closed {
		t.Errorf("symlink in the temporary file's place: %+v, %v", s, err)
	}
	if data, _ := os.ReadFile(victim); string(data) != "precious" {
		t.Errorf("the victim is %q", data)
	}
	if s, err := d.Close("never-prepared", "e1", testNonce, "x"); err != nil || s.Phase != execphase.Closed {
		t.Errorf("without a directory: %+v, %v", s, err)
	}
	if names, _ := filepath.Glob(filepath.Join(p.Logs, ".*.tmp")); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestOneOfManyCreatorsWins(t *testing.T) {
	_, p := newDir(t)
	fd, err := OpenDir(p.Logs)
	must(t, err)
	defer unix.Close(fd)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 20 {
		wg.Go(func() {
			err := CreateExclusive(fd, TempName("e1", fmt.Sprint(i)), "e1.journal", []byte(journal("started", testNonce)), true)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, os.ErrExist) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d creators won", won)
	}
}

func TestRequestFiles(t *testing.T) {
	d, p := newDir(t)
	r := Request{ExecID: "e1", Nonce: testNonce, Command: []string{"true"}, Env: map[string]string{"TOKEN": "hunter2"}}
	must(t, d.Start("box1", r))
	path := filepath.Join(p.Ctl, "exec", "e1.json")
	before, err := os.Stat(path)
	must(t, err)
	if before.Mode() != 0o600 {
		t.Errorf("mode %v", before.Mode())
	}
	must(t, d.Start("box1", r))
	if after, _ := os.Stat(path); !os.SameFile(before, after) {
		t.Error("the same request was written twice")
	}
	must(t, os.WriteFile(path, nil, 0o600)) // torn by a power loss
	must(t, d.Start("box1", r))
	data, err := os.ReadFile(path)
	must(t, err)
	if got, err := DecodeRequest(data, "e1"); err != nil || got.Env["TOKEN"] != "hunter2" {
		t.Errorf("%+v, %v", got, err)
	}
	must(t, d.Cancel("box1", "e1", testNonce))
	for range 2 {
		must(t, d.Forget("box1", "e1"))
	}
	if names, _ := os.ReadDir(filepath.Join(p.Ctl, "exec")); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
	if err := d.Start("unknown", r); !errdefs.IsNotFound(err) {
		t.Errorf("before Prepare: %v", err)
	}
	must(t, d.Forget("unknown", "e1"))
	r.Command = nil
	if err := d.Start("box1", r); !errdefs.IsInvalidArgument(err) {
		t.Errorf("invalid: %v", err)
	}
	if err := d.Cancel("box1", "e1", "short"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("invalid nonce: %v", err)
	}
}

func TestRemove(t *testing.T) {
	d, p := newDir(t)
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.MkdirAll(filepath.Join(victim, "sub"), 0o755))
	write(t, victim, "file", "precious")
	must(t, os.Symlink(victim, filepath.Join(p.Out, "link")))
	must(t, os.Symlink(victim, filepath.Join(p.Logs, "link")))
	must(t, syscall.Mkfifo(filepath.Join(p.Out, "fifo"), 0o644))
	must(t, os.MkdirAll(filepath.Join(p.Logs, ".rm-1", "x", "y"), 0o755))
	must(t, d.Start("box1", Request{ExecID: "e1", Nonce: testNonce, Command: []string{"true"}}))
	deep(t, p.Out, 3000)
	for i := range 5000 {
		must(t, os.Symlink("/", filepath.Join(p.Logs, fmt.Sprint(i))))
	}
	calls := removeAll(t, d, "box1")
	t.Logf("removed in %d calls", calls)
	must(t, d.Remove("box1"))
	for _, path := range []string{p.Logs, filepath.Dir(p.Ctl)} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if data, _ := os.ReadFile(filepath.Join(victim, "file")); string(data) != "precious" {
		t.Error("a symlink was followed")
	}
	if err := d.Remove(".."); !errdefs.IsInvalidArgument(err) {
		t.Errorf("escaping ID: %v", err)
	}
}

// removeAll calls Remove until it has finished, and returns the number of calls.
func removeAll(t *testing.T, d *Dir, sandboxID string) int {
	t.Helper()
	for calls := 1; ; calls++ {
		begun, err := time.Now(), d.Remove(sandboxID)
		var unfinished *UnfinishedError
		if !errors.As(err, &unfinished) {
			must(t, err)
			return calls
		}
		if !errdefs.IsUnavailable(err) || unfinished.Removed == 0 && time.Since(begun) < removeBudget {
			t.Fatalf("after %s: %v", time.Since(begun), err)
		}
	}
}

// TestRemoveContinuesAfterATimeout: names that an earlier call has moved up do not block a later call.
func TestRemoveContinuesAfterATimeout(t *testing.T) {
	_, p := newDir(t)
	for i := range 50 {
		deep(t, p.Out, 20)
		must(t, os.Rename(filepath.Join(p.Out, "d"), filepath.Join(p.Out, fmt.Sprint(i))))
	}
	fd, err := OpenDir(p.Out)
	must(t, err)
	defer unix.Close(fd)
	for calls := 0; ; calls++ { // each call has time for a few entries
		f := flattener{top: fd, deadline: time.Now().Add(300 * time.Microsecond)}
		more, err := f.sweep(fd)
		if !more {
			must(t, err)
			t.Logf("%d calls", calls)
			break
		}
		if calls > 50_000 {
			t.Fatalf("still not empty after %d calls: %v", calls, err)
		}
	}
}

// deep creates a directory tree deeper than a path or a table of descriptors can be.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := OpenDir(dir)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

func TestWatchNotifiesOfEveryJournal(t *testing.T) {
	d, p := newDir(t) // watched before Watch runs
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan [2]string, 100)
	done := make(chan error, 1)
	go func() { done <- d.Watch(ctx, func(s, e string) { told <- [2]string{s, e} }) }()
	expect(t, told, [2]string{"", ""}) // earlier changes
	write(t, p.Logs, "e1.stdout.log", "x")
	write(t, p.Logs, ".e1.journal.tmp", "x")
	must(t, os.Link(filepath.Join(p.Logs, ".e1.journal.tmp"), filepath.Join(p.Logs, "e1.journal")))
	expect(t, told, [2]string{"box1", "e1"})
	must(t, os.Rename(filepath.Join(p.Logs, ".e1.journal.tmp"), filepath.Join(p.Logs, "e2.journal")))
	expect(t, told, [2]string{"box1", "e2"})
	write(t, p.Logs, LostName("e3"), "")
	expect(t, told, [2]string{"box1", "e3"})
	must(t, withDir(p.Logs, func(logs int) error { return Report(logs, Start{}) }))
	expect(t, told, [2]string{"box1", "_main"})
	if _, err := d.Close("box1", "_hook.0", testNonce, "x"); err != nil {
		t.Fatal(err)
	}
	expect(t, told, [2]string{"box1", "_hook.0"})
	write(t, p.Logs, LostName("_hook.1"), "")
	expect(t, told, [2]string{"box1", "_hook.1"})
	if _, err := d.Prepare("box2"); err != nil { // while Watch runs
		t.Fatal(err)
	}
	if _, err := d.Close("box2", "e4", testNonce, "x"); err != nil {
		t.Fatal(err)
	}
	expect(t, told, [2]string{"box2", "e4"})
	must(t, d.Remove("box2"))
	if _, err := d.Prepare("box2"); err != nil { // a new directory of the same name
		t.Fatal(err)
	}
	if _, err := d.Close("box2", "e5", testNonce, "x"); err != nil {
		t.Fatal(err)
	}
	expect(t, told, [2]string{"box2", "e5"})
	if err := d.Watch(ctx, func(string, string) {}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("second Watch: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := d.AddWatch("box1"); err != nil {
		t.Errorf("after Watch: %v", err)
	}
}

// expect waits for a notification. One of a whole sandbox may precede it: until Watch has its inotify instance, the
// directory is polled.
func expect(t *testing.T, told <-chan [2]string, want [2]string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case got := <-told:
			if got == want {
				return
			}
			if got[0] == "" || got[1] != "" {
				t.Fatalf("told %q, want %q", got, want)
			}
		case <-timeout:
			t.Fatalf("not told %q", want)
		}
	}
}

// Events dropped by the kernel are followed by a notification for any exec.
func TestWatchSurvivesAFlood(t *testing.T) {
	d, p := newDir(t)
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	queue, err := strconv.Atoi(strings.TrimSpace(string(limit)))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := 0
	started, flooded, again, done := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- d.Watch(ctx, func(_, e string) {
			if e != "" {
				<-flooded // the receiver is busy
				return
			}
			switch looks++; looks {
			case 1:
				close(started)
			case 2:
				close(again)
			}
		})
	}()
	<-started
	names := [2]string{filepath.Join(p.Logs, "x0.journal"), filepath.Join(p.Logs, "x1.journal")}
	write(t, p.Logs, "x0.journal", "")
	for i := range 2*queue + 1000 { // more than one read and the kernel's queue hold
		must(t, os.Rename(names[i%2], names[(i+1)%2]))
	}
	close(flooded)
	select {
	case <-again:
	case <-time.After(20 * time.Second):
		t.Fatal("no notification of dropped events")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
