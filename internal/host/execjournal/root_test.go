package execjournal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestCheckRootRefusesWhatOthersCanLeadElsewhere(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, dir string) (root string)
		want string // empty: it is safe
	}{
		{"a missing directory", func(_ *testing.T, dir string) string { return filepath.Join(dir, "a", "b") }, ""},
		{"an own directory", func(t *testing.T, dir string) string { return mkdir(t, dir, "own", 0o700) }, ""},
		{"a parent that is an own link", func(t *testing.T, dir string) string {
			must(t, os.Symlink(mkdir(t, dir, "real", 0o700), filepath.Join(dir, "link")))
			return filepath.Join(dir, "link", "logs")
		}, ""},
		{"a parent that all write to, with a sticky bit", func(t *testing.T, dir string) string {
			return filepath.Join(mkdir(t, dir, "tmp", 0o777|os.ModeSticky), "logs")
		}, ""},
		{"a relative path", func(*testing.T, string) string { return "logs" }, "not an absolute path"},
		{"a link", func(t *testing.T, dir string) string {
			link := filepath.Join(dir, "link")
			must(t, os.Symlink(mkdir(t, dir, "real", 0o700), link))
			return link
		}, "is a symbolic link; name the directory that it leads to"},
		{"a link to nowhere", func(t *testing.T, dir string) string {
			link := filepath.Join(dir, "link")
			must(t, os.Symlink(filepath.Join(dir, "missing"), link))
			return link
		}, "is a symbolic link"},
		{"a parent that leads nowhere", func(t *testing.T, dir string) string {
			must(t, os.Symlink(filepath.Join(dir, "missing"), filepath.Join(dir, "link")))
			return filepath.Join(dir, "link", "logs")
		}, "/link above it is a symbolic link that leads nowhere"},
		{"a file", func(t *testing.T, dir string) string {
			write(t, dir, "file", "")
			return filepath.Join(dir, "file")
		}, "is not a directory"},
		{"a parent that is a file", func(t *testing.T, dir string) string {
			write(t, dir, "file", "")
			return filepath.Join(dir, "file", "logs")
		}, "not a directory"},
		{"a parent that all write to", func(t *testing.T, dir string) string {
			return filepath.Join(mkdir(t, dir, "open", 0o777), "logs")
		}, "every user can write to"},
		{"a link to a directory whose parent all write to", func(t *testing.T, dir string) string {
			must(t, os.Symlink(mkdir(t, mkdir(t, dir, "open", 0o777), "real", 0o700), filepath.Join(dir, "link")))
			return filepath.Join(dir, "link", "logs")
		}, "/open above it"},
		{"another user's directory", func(t *testing.T, dir string) string {
			asRoot(t)
			root := mkdir(t, dir, "foreign", 0o700)
			must(t, os.Chown(root, 12345, 12345))
			return root
		}, "belongs to user 12345, not to agboxd's user 0"},
		{"a parent that is another user's link", func(t *testing.T, dir string) string {
			asRoot(t)
			link := filepath.Join(dir, "link")
			must(t, os.Symlink(mkdir(t, dir, "real", 0o700), link))
			must(t, os.Lchown(link, 12345, 12345))
			return filepath.Join(link, "logs")
		}, "/link above it is a symbolic link of user 12345"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			root := c.make(t, dir)
			before := tree(t, dir)
			err := CheckRoot(root)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v; want %q", err, c.want)
			}
			if err != nil && !errdefs.IsFailedPrecondition(err) && !errdefs.IsInvalidArgument(err) {
				t.Errorf("class of %v", err)
			}
			if after := tree(t, dir); after != before {
				t.Errorf("the check changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
}

func mkdir(t *testing.T, dir, name string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.Mkdir(path, 0o700))
	must(t, os.Chmod(path, mode))
	return path
}

func tree(t *testing.T, dir string) string {
	t.Helper()
	var lines strings.Builder
	must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			lines.WriteString(info.Mode().String() + " " + path + "\n")
		}
		return err
	}))
	return lines.String()
}
