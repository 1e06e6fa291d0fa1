package execjournal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/execid"
)

func TestTail(t *testing.T) {
	d, p := newDir(t)
	write(t, p.Logs, StdoutName("_hook.0"), "first\nlast\n")
	write(t, p.Logs, StderrName("_hook.0"), "")
	write(t, p.Logs, StderrName(execid.Main), "main\n")
	big := filepath.Join(p.Logs, StdoutName("big"))
	write(t, p.Logs, StdoutName("big"), "")
	must(t, os.Truncate(big, 1<<40))
	for _, c := range []struct {
		id     string
		stderr bool
		limit  int
		want   string
	}{
		{"_hook.0", false, 5, "last\n"},
		{"_hook.0", false, 11, "first\nlast\n"},
		{"_hook.0", false, 1000, "first\nlast\n"},
		{"_hook.0", false, 0, ""},
		{"_hook.0", false, -1, ""},
		{"_hook.0", true, 1000, ""},
		{execid.Main, true, 1000, "main\n"},
		{"big", false, 3, "\x00\x00\x00"},
		{"big", false, 1 << 30, strings.Repeat("\x00", MaxTailBytes)},
	} {
		if data, err := d.Tail("box1", c.id, c.stderr, c.limit); err != nil || string(data) != c.want {
			t.Errorf("%s, %v, %d: %d bytes, %v", c.id, c.stderr, c.limit, len(data), err)
		}
	}
	for _, id := range [][2]string{{"box1", "none"}, {"none", "_hook.0"}} {
		if _, err := d.Tail(id[0], id[1], false, 10); !errdefs.IsNotFound(err) {
			t.Errorf("%v: %v", id, err)
		}
	}
	for _, id := range [][2]string{{"box1", "../x"}, {"../x", "e1"}} {
		if _, err := d.Tail(id[0], id[1], false, 10); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v", id, err)
		}
	}
}

func TestTailOfAHostileDirectory(t *testing.T) {
	d, p := newDir(t)
	write(t, p.Logs, "secret", "secret")
	path := func(id string) string { return filepath.Join(p.Logs, StdoutName(id)) }
	must(t, os.Symlink("secret", path("link")))
	must(t, syscall.Mkfifo(path("fifo"), 0o644))
	must(t, os.Mkdir(path("dir"), 0o755))
	if os.Geteuid() == 0 {
		must(t, syscall.Mknod(path("device"), syscall.S_IFCHR|0o644, 1<<8|5)) // /dev/zero
	} else {
		must(t, os.Symlink("/dev/zero", path("device")))
	}
	for _, id := range []string{"link", "fifo", "dir", "device"} {
		if data, err := d.Tail("box1", id, false, 10); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %q, %v", id, data, err)
		}
	}
}

func TestMainLogPaths(t *testing.T) {
	d, p := newDir(t)
	stdout, stderr := d.MainLogPaths("box1")
	if stdout != filepath.Join(p.Logs, "_main.stdout.log") || stderr != filepath.Join(p.Logs, "_main.stderr.log") {
		t.Errorf("%s and %s", stdout, stderr)
	}
}
