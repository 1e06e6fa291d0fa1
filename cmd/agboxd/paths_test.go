package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox/agbox/config"
)

// The host of the tests may have a system service.
func init() { systemPaths = inDir("/nonexistent") }

func inDir(dir string) config.Paths {
	p := config.SystemPaths()
	p.DataDir, p.Database = filepath.Join(dir, "data"), filepath.Join(dir, "data", "ids.db")
	p.ConfigFile = filepath.Join(dir, "config.toml")
	return p
}

func TestRootFindsTheFilesOfTheService(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("root's commands find the service")
	}
	homed(t)
	was := systemPaths
	t.Cleanup(func() { systemPaths = was })
	systemPaths = inDir(t.TempDir())
	own := filepath.Join(os.Getenv("XDG_DATA_HOME"), "agents-sandbox")
	shown := func(args ...string) string {
		_, out, errs := outcome(append([]string{"config", "show"}, args...)...)
		return out + errs
	}
	for _, step := range []struct {
		mkdir, want string
		args        []string
	}{
		{"", own + "/ids.db", nil}, // no service
		{systemPaths.DataDir, systemPaths.Database, nil},
		{"", own + "/ids.db", []string{"--user"}},
		{own, "add --system for the first or --user for the second", nil},
		{"", systemPaths.Database, []string{"--system"}},
		{"", "[system user]", []string{"--system", "--user"}},
	} {
		if step.mkdir != "" {
			if err := os.MkdirAll(step.mkdir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if out := shown(step.args...); !strings.Contains(out, step.want) {
			t.Errorf("%v with %q: lacks %q\n%s", step.args, step.mkdir, step.want, out)
		}
	}
}
