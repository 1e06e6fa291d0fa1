package mountpolicy

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// agboxd's directories, the engine's socket and its data root are configured through a symbolic link and protected at their real paths.
func TestDirectoriesBehindLinksAreProtectedAtTheirRealPaths(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	target, link := filepath.Join(root, "real"), filepath.Join(root, "link")
	for _, dir := range []string{"own", "engine/docker", "other"} {
		if err := os.MkdirAll(filepath.Join(target, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	p := Places{Own: []string{link + "/own", link + "/own/made-later"}, Socket: link + "/engine/sock"}
	policy := p.Policy(false, nil, link+"/engine/docker", slog.New(slog.DiscardHandler))
	for source, want := range map[string]string{
		"/own": "agboxd's own", "/own/ids.db": "agboxd's own", "/own/made-later": "agboxd's own",
		"/engine/sock": "/engine/sock, which is the container engine's", "/engine/docker/volumes": "the container engine's data directory",
		"/engine": "the container engine's", "/other": "",
	} {
		got := policy.Refuses(target+source, Use{Writable: true})
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
	if got := policy.Covers(target); len(got) != 1 || got[0] != "own" {
		t.Errorf("covered are %q", got)
	}
}

// The covers are read-only, also for the user who starts agboxd again.
func TestTheCoversAreThereAtTheSecondStart(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		covers, err := MakeCovers(dir)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(covers, "file"))
		if err != nil || info.Size() != 0 || info.Mode() != 0o444 {
			t.Errorf("got %v, %v", info, err)
		}
	}
}
