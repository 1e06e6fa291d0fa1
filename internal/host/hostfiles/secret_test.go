package hostfiles_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/hostfiles"
)

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func anything(string) string { return "" }

func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	noErr(t, os.WriteFile(at("token"), []byte("s3cret"), 0o600))
	noErr(t, os.WriteFile(at("large"), bytes.Repeat([]byte{'x'}, hostfiles.MaxSecretBytes), 0o600))
	noErr(t, os.WriteFile(at("larger"), make([]byte, hostfiles.MaxSecretBytes+1), 0o600))
	noErr(t, os.WriteFile(at("empty"), nil, 0o600))
	noErr(t, unix.Mkfifo(at("fifo"), 0o600))
	noErr(t, os.Symlink("gone", at("dangling")))
	noErr(t, os.Mkdir(at("..2026"), 0o700)) // as Kubernetes mounts a secret
	noErr(t, os.WriteFile(at("..2026/key"), []byte("s3cret"), 0o600))
	noErr(t, os.Symlink("..2026", at("..data")))
	noErr(t, os.Symlink("..data/key", at("key")))
	for name, want := range map[string]string{
		"token": "", "large": "", "empty": "", "key": "",
		"larger":     "is 1048577 bytes; the limit of a secret is 1048576",
		"fifo":       "is not a regular file",
		"..2026":     "is not a regular file",
		"gone":       "does not exist on this host",
		"dangling":   "does not exist on this host",
		"token/more": "can't be read by agboxd: not a directory",
	} {
		data, _, why := hostfiles.ReadSecret(at(name), anything)
		if why != want || (name == "token" || name == "key") && string(data) != "s3cret" {
			t.Errorf("%s: %q, %d bytes", name, why, len(data))
		}
	}
}

// What counts is where the file is now, not which path leads there.
func TestAPolicyJudgesTheFileThatASecretLeadsTo(t *testing.T) {
	dir := t.TempDir()
	own, link := filepath.Join(dir, "ids.db"), filepath.Join(dir, "link")
	noErr(t, os.WriteFile(own, []byte("s3cret"), 0o600))
	noErr(t, os.Symlink("ids.db", link))
	refuses := func(path string) string {
		if path == own {
			return "lies in agboxd's own"
		}
		return ""
	}
	for path, want := range map[string]string{own: "lies in agboxd's own", link: `leads to "` + own + `", which lies in agboxd's own`} {
		if data, _, why := hostfiles.ReadSecret(path, refuses); why != want || data != nil {
			t.Errorf("%s: %q", path, why)
		}
	}
	broken := hostfiles.CheckSecrets(&agboxv1.CreateSpec{Secrets: []*agboxv1.SecretSpec{{Name: "a", File: link}}}, func(string) bool { return false }, refuses)
	if got := broken.Error(); !strings.HasPrefix(got, "secrets[a].file ") || strings.Contains(got, "s3cret") {
		t.Error(got)
	}
}

func TestDirWatchWakes(t *testing.T) {
	dir := t.TempDir()
	w, err := hostfiles.NewDirWatch()
	noErr(t, err)
	defer w.Close()
	w.Set([]string{dir, filepath.Join(dir, "missing")})
	ctx := context.Background()
	for what, change := range map[string]func(){
		"write": func() { noErr(t, os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o600)) },
		"link":  func() { noErr(t, os.Symlink("a", filepath.Join(dir, "b"))) },
		"rename": func() {
			noErr(t, os.WriteFile(filepath.Join(dir, "c"), []byte("y"), 0o600))
			noErr(t, os.Rename(filepath.Join(dir, "c"), filepath.Join(dir, "a")))
		},
	} {
		change()
		began := time.Now()
		if w.Wait(ctx, time.Minute, nil); time.Since(began) > 30*time.Second {
			t.Errorf("%s: not woken", what)
		}
	}
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	w.Wait(ctx, time.Minute, wake)
	w.Set(nil)
	noErr(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	w.Wait(ctx, time.Millisecond, nil) // drains what came before
	began := time.Now()
	if w.Wait(ctx, 50*time.Millisecond, nil); time.Since(began) < 50*time.Millisecond {
		t.Error("woken by a directory that is not watched any more")
	}
}
