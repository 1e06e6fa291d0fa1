package agent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGitSaveDistinguishesNoWorkTreeFromFailure runs the default save command itself: a work tree that git cannot open holds unsaved work,
// unlike a directory without a work tree.
func TestGitSaveDistinguishesNoWorkTreeFromFailure(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		path    string // of programs; empty: the test's own
		want    int
	}{
		"no work tree":                       {func(*testing.T, string) {}, "", exitNoWorkTree},
		"no work tree, no git":               {func(*testing.T, string) {}, "/nowhere", exitNoWorkTree},
		"a work tree":                        {gitInit, "", 0},
		"a work tree, no git":                {gitInit, "/nowhere", 65},
		"a work tree that git does not open": {func(t *testing.T, dir string) { makeDir(t, dir, ".git") }, "", 65},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			c.prepare(t, root)
			cmd := exec.Command("/bin/sh", gitSave[1:]...)
			cmd.Dir = makeDir(t, root, "below", "it")
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
			if c.path != "" {
				cmd.Env = append(cmd.Env, "PATH="+c.path)
			}
			code := 0
			var exit *exec.ExitError
			if err := cmd.Run(); errors.As(err, &exit) {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != c.want {
				t.Errorf("it ended with %d, want %d", code, c.want)
			}
		})
	}
}

func gitInit(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func makeDir(t *testing.T, path ...string) string {
	t.Helper()
	dir := filepath.Join(path...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
