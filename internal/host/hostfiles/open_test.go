package hostfiles

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// opened opens path with openat2 and by walking, which must agree.
func opened(t *testing.T, path string) error {
	t.Helper()
	fd, err := openBeneath(path)
	if err == nil {
		unix.Close(fd)
	} else if errors.Is(err, unix.ENOSYS) {
		t.Skip("the kernel has no openat2")
	}
	fd, walked := walkTo(path)
	if walked == nil {
		unix.Close(fd)
	}
	if !errors.Is(walked, err) {
		t.Errorf("%s: openat2 says %v, the walk says %v", path, err, walked)
	}
	return err
}

func TestOpenFollowsNoLink(t *testing.T) {
	root := tree(t, "d/f", "l -> d", "d/m -> f", "loop -> loop", "gone -> none")
	for path, want := range map[string]error{
		"/": nil, root: nil, root + "/d/f": nil,
		root + "/l": unix.ELOOP, root + "/l/f": unix.ELOOP, root + "/d/m": unix.ELOOP, root + "/loop": unix.ELOOP, root + "/gone": unix.ELOOP,
		root + "/none": unix.ENOENT, root + "/none/x": unix.ENOENT, root + "/d/f/x": unix.ENOTDIR,
		"/proc/self/fd/0": unix.ELOOP,
	} {
		if err := opened(t, path); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
		f, err := Open(path)
		if !errors.Is(err, want) {
			t.Errorf("Open(%s): got %v, want %v", path, err, want)
		}
		if err == nil {
			f.Close()
		}
	}
}

func TestOpenRequiresCleanPaths(t *testing.T) {
	for _, path := range []string{"", ".", "a", "/a/", "//a", "/a/../b", "/a/./b", "/a\x00"} {
		if _, err := Open(path); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: got %v", path, err)
		}
	}
}

func TestReplacingAPathAfterOpenHasNoEffect(t *testing.T) {
	root := tree(t, "d/f", "other/f")
	f, err := Open(root + "/d/f")
	must(t, err)
	defer f.Close()
	before, err := f.Stat()
	must(t, err)
	must(t, os.Rename(root+"/d", root+"/gone"))
	must(t, os.Symlink(root+"/other", root+"/d"))
	after, err := f.Stat()
	must(t, err)
	moved, err := os.Lstat(root + "/gone/f")
	must(t, err)
	if !os.SameFile(before, after) || !os.SameFile(after, moved) {
		t.Error("the descriptor refers to another file")
	}
	if _, err := Open(root + "/d/f"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("the path opens again: %v", err)
	}
}

func listen(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	must(t, err)
	t.Cleanup(func() { l.Close() })
}

func TestCheckSource(t *testing.T) {
	root := tree(t, "d/f", "l -> d", "dangling -> none")
	listen(t, root+"/s")
	must(t, unix.Mkfifo(root+"/pipe", 0o644))
	for path, want := range map[string]string{
		root + "/d":        "",
		root + "/d/f":      "",
		root + "/s":        "",
		root + "/none":     "does not exist on this host",
		root + "/l/f":      `is, or goes through, a symbolic link; write "` + root + `/d/f"`,
		root + "/l":        `is, or goes through, a symbolic link; write "` + root + `/d"`,
		root + "/dangling": "does not exist on this host",
		root + "/d/f/x":    "cannot be inspected: not a directory",
		root + "/pipe":     "is not a file, directory or socket",
		"/dev/null":        "is not a file, directory or socket",
	} {
		if got := CheckSource(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
		want, _, _ = strings.Cut(want, "; write")
		if err := Verify(path); (err == nil) != (want == "") || err != nil && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), want)) {
			t.Errorf("Verify(%s): %v", path, err)
		}
	}
}

func TestVerifyDetectsALaterLink(t *testing.T) {
	root := tree(t, "d/f", "other/f")
	must(t, Verify(root+"/d/f"))
	must(t, os.Rename(root+"/d", root+"/gone"))
	must(t, os.Symlink(root+"/other", root+"/d"))
	err := Verify(root + "/d/f")
	if !errdefs.IsFailedPrecondition(err) || strings.Contains(err.Error(), root+"/other") || !strings.Contains(err.Error(), "restore the original path") {
		t.Errorf("got %v", err)
	}
}

func TestCheckMountsAndCopiesNameEachField(t *testing.T) {
	root := tree(t, "f", "d/")
	listen(t, root+"/s")
	broken := CheckMounts([]*agboxv1.MountSpec{{Source: root + "/s"}, {Source: root + "/none"}})
	if len(broken) != 1 || broken[0].Field != "mounts[1].source" || broken[0].Message != `mounts[1].source "`+root+`/none" does not exist on this host` {
		t.Errorf("got %+v", broken)
	}
	broken = CheckCopies([]*agboxv1.CopySpec{
		{Source: root + "/d", ExcludePatterns: []string{"*.o", "", "[a"}},
		{Source: root + "/s"},
		{Source: root + "/f"},
	})
	if len(broken) != 2 || broken[0].Field != "copies[0].exclude_patterns[2]" || broken[1].Field != "copies[1].source" ||
		!strings.HasSuffix(broken[1].Message, "is not a file or directory") || !strings.Contains(broken[0].Message, `"[a" has a "["`) {
		t.Errorf("got %+v", broken)
	}
}

func TestErrorsOfOpenKeepTheirKind(t *testing.T) {
	var pathErr *fs.PathError
	if _, err := Open("/none/of/this"); !errors.As(err, &pathErr) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
