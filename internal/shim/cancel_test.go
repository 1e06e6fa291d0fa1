package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCancelEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		grace        int64
	}{
		{"a plain command", "echo up; exec sleep 1000", 5000},
		{"a child in its own session", "setsid sleep 1000 & echo up; wait", 5000},
		{"a daemon that forked twice", "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo up; sleep 1000", 5000},
		{"a stopped child", "sleep 1000 & kill -STOP $!; echo up; wait", 5000},
		{"a tree that ignores TERM", "trap '' TERM; sh -c 'trap \"\" TERM; while :; do sleep 1000; done' & echo up; while :; do sleep 1; done", 100},
		{"a child without its pipes that ignores TERM", "(trap '' TERM; exec sleep 1000 >/dev/null 2>&1) & echo up; wait", 100},
		{"a tree that goes on forking", "trap '' TERM; f() { while :; do (exec sleep 0.01) & done; }; f & f & echo up; wait", 50},
		{"no grace at all", "echo up; sleep 1000", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t).boot()
			r := b.sh(c.script)
			r.CancelGraceMillis = c.grace
			b.says(b.start(r), "up\n")
			b.cancel(r)
			j := b.ended(r)
			if !j.Cancelled || j.Stopped || j.ExitCode == 0 {
				t.Errorf("%+v", j)
			}
			list, _ := processes()
			for _, p := range below(list, b.cmd.Process.Pid, nil) {
				if p.parent != b.cmd.Process.Pid {
					t.Errorf("process %+v is left when the end is recorded", p)
				}
			}
			b.until("the supervisor to go", func() bool { return b.remnants() == 0 })
		})
	}
}

func TestCancelKeepsATrueResult(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.sh("sleep 1000 & exit 3")
	if j := b.ended(b.start(r)); j.ExitCode != 3 || j.Cancelled {
		t.Fatalf("%+v", j)
	}
	b.cancel(r)
	b.ended(b.start(b.sh("true"))) // init has observed the cancel by then
	if j := b.look(r).Journal; j.ExitCode != 3 || j.Cancelled {
		t.Errorf("%+v", j)
	}
	if b.remnants() < 2 {
		t.Error("the child that outlived its command was killed by a late cancel")
	}
	// A command that exits with code 0 on TERM was still ended by the cancel.
	r = b.sh("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
	b.says(b.start(r), "up\n")
	b.cancel(r)
	if j := b.ended(r); !j.Cancelled || j.ExitCode != 0 {
		t.Errorf("%+v", j)
	}
	b.says(r, "bye\n")
}

func TestCancelOfAnotherNonceDoesNothing(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.start(b.sh("echo up; sleep 0.3; echo done"))
	b.says(r, "up\n")
	other := r
	other.Nonce = strings.Repeat("f", 32)
	b.cancel(other)
	if j := b.ended(r); j.Cancelled || j.ExitCode != 0 {
		t.Errorf("%+v", j)
	}
}

func TestCancelBeforeTheStart(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	marker := filepath.Join(t.TempDir(), "ran")
	r := b.request("touch", marker)
	b.cancel(r)
	b.start(r)
	b.boot()
	if j := b.ended(r); !j.Cancelled || j.ExitCode != 143 || j.StartedAtNanos != 0 {
		t.Errorf("%+v", j)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("it ran")
	}
}

func TestTimeoutEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	for _, c := range []struct {
		name, script string
		grace        int64
	}{
		{"a plain command", "exec sleep 1000", 600_000},
		{"a child in its own session", "setsid sleep 1000 & wait", 600_000},
		{"a tree that ignores TERM", "trap '' TERM; sh -c 'while :; do sleep 1000; done' & while :; do sleep 1; done", 100},
		{"a command that exits with 0 on TERM", "trap 'exit 0' TERM; while :; do sleep 0.05; done", 600_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := b.sh(c.script)
			r.CancelGraceMillis, r.TimeoutMillis = c.grace, 200
			if j := b.ended(b.start(r)); j.TimeoutMillis != 200 || j.Cancelled || j.Stopped || j.EndedAtNanos-j.StartedAtNanos < 200e6 {
				t.Errorf("%+v", j)
			}
			b.until("the supervisor to go", func() bool { return b.remnants() == 0 })
		})
	}
	t.Run("a command that ends before", func(t *testing.T) {
		r := b.sh("exit 3")
		r.TimeoutMillis = 600_000
		if j := b.ended(b.start(r)); j.TimeoutMillis != 0 || j.ExitCode != 3 {
			t.Errorf("%+v", j)
		}
	})
	t.Run("a child that outlives its command", func(t *testing.T) {
		r := b.sh("(trap '' TERM; sleep 3; echo late) & exit 3")
		r.TimeoutMillis = 2000
		if j := b.ended(b.start(r)); j.TimeoutMillis != 0 || j.ExitCode != 3 {
			t.Fatalf("%+v", j)
		}
		b.says(r, "late\n") // the timeout is the command's, which has ended
	})
	t.Run("a cancel before", func(t *testing.T) {
		r := b.sh("echo up; exec sleep 1000")
		r.TimeoutMillis = 600_000
		b.says(b.start(r), "up\n")
		b.cancel(r)
		if j := b.ended(r); j.TimeoutMillis != 0 || !j.Cancelled {
			t.Errorf("%+v", j)
		}
	})
}
