package shim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

func (b *box) putSecret(name, target, value string) {
	b.Helper()
	if err := b.dir.PutSecret(sandbox, "", name, execjournal.Secret{Target: target, Value: []byte(value)}); err != nil {
		b.Fatal(err)
	}
}

// shows waits until a target has the value.
func (b *box) shows(target, value string) {
	b.Helper()
	b.until(target+" has "+value, func() bool {
		data, err := os.ReadFile(target)
		return err == nil && string(data) == value
	})
}

func (b *box) absent(path string) {
	b.Helper()
	b.until(path+" is gone", func() bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

func (b *box) keepSecrets(names ...string) {
	b.Helper()
	if err := b.dir.KeepSecrets(sandbox, "", names...); err != nil {
		b.Fatal(err)
	}
}

func TestSecretsAreDeliveredAndWithdrawn(t *testing.T) {
	b, root := newBox(t), t.TempDir()
	token, key, moved := filepath.Join(root, "run", "secrets", "token"), filepath.Join(root, "key"), filepath.Join(root, "moved")
	if err := os.WriteFile(key, []byte("the image's"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.putSecret("token", token, "one")
	b.putSecret("key", key, "two")
	b.boot()
	if j := b.ended(b.start(b.sh("test \"$(cat " + token + key + " 2>/dev/null; cat " + token + " " + key + ")\" = onetwo"))); j.ExitCode != 0 {
		t.Errorf("the first command does not find them: %+v", j)
	}
	value := filepath.Join(b.paths.Out, execjournal.SecretsDir, "token")
	if info, err := os.Stat(value); err != nil || info.Mode() != 0o400 {
		t.Errorf("%v, %v", info, err)
	}
	b.putSecret("token", token, "three")
	b.shows(token, "three")
	b.putSecret("token", moved, "three")
	b.shows(moved, "three")
	b.absent(token)
	b.keepSecrets("token")
	b.absent(key)
	b.absent(filepath.Join(b.paths.Out, execjournal.SecretsDir, "key"))
	b.stop()

	b.keepSecrets() // while PID 1 is away
	b.putSecret("new", token, "four")
	b.boot()
	b.shows(token, "four")
	b.absent(moved)
	b.absent(value)
	if got := b.dir.SecretProblems(sandbox); got != nil {
		t.Error(got)
	}
	b.stop()
}

// A command that owns a parent of a target can't make PID 1 write elsewhere, and what it puts at a target is replaced at the next start.
func TestATargetBehindALinkGetsNothing(t *testing.T) {
	b, root := newBox(t), t.TempDir()
	home, etc := filepath.Join(root, "home"), filepath.Join(root, "etc")
	for _, err := range []error{os.Mkdir(etc, 0o700), os.Symlink(etc, home), os.MkdirAll(filepath.Join(root, "dir", "sub"), 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.putSecret("passwd", filepath.Join(home, "passwd"), "v")
	b.putSecret("sub", filepath.Join(root, "dir", "sub"), "v")
	b.boot()
	var problems []string
	b.until("the problems", func() bool { problems = b.dir.SecretProblems(sandbox); return len(problems) == 2 })
	for i, want := range []string{"secret passwd: nothing can be made at " + home + "/passwd", "secret sub: nothing can be made at " + root + "/dir/sub"} {
		if !strings.HasPrefix(problems[i], want) || strings.HasSuffix(problems[i], ": v") {
			t.Errorf("%q", problems)
		}
	}
	if files, err := os.ReadDir(etc); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
	if err := os.Remove(home); err != nil {
		t.Fatal(err)
	}
	b.shows(filepath.Join(home, "passwd"), "v") // the next rescan
	b.putSecret("sub", filepath.Join(root, "s"), "v")
	b.until("no problems", func() bool { return b.dir.SecretProblems(sandbox) == nil })
	b.stop()

	if err := os.Remove(filepath.Join(root, "s")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "s"), []byte("forged"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.boot()
	b.shows(filepath.Join(root, "s"), "v")
	b.stop()
	var names []string
	files, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	if want := []string{"dir", "etc", "home", "s"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

// Programs trust what the image trusts, or else what the host does, and the authority too.
func TestTheAuthorityComesAfterTheImagesBundle(t *testing.T) {
	dir := t.TempDir()
	bundles := []string{"", filepath.Join(dir, "none"), filepath.Join(dir, "ca-certificates.crt")}
	out, err := execjournal.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(out)
	for _, c := range []struct{ image, host, want string }{
		{"", "", "\nauthority\n"}, {"", "of the host", "of the host\nauthority\n"},
		{"of the image", "", "of the image\nauthority\n"}, {"of the image", "of the host", "of the image\nauthority\n"},
	} {
		if c.image != "" {
			if err := os.WriteFile(bundles[2], []byte(c.image), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s := execjournal.Secret{Value: []byte("authority\n"), Others: []byte(c.host)}
		if warning, err := putRoots(out, execjournal.AuthoritySecret, s, bundles, passwd.Identity{UID: 1000, GID: 1000}); err != nil || warning != "" {
			t.Fatal(warning, err)
		}
		path := filepath.Join(dir, execjournal.AuthoritySecret)
		got, err := os.ReadFile(path)
		if info, statErr := os.Stat(path); err != nil || statErr != nil || string(got) != c.want || info.Mode() != 0o444 {
			t.Errorf("%+v: %q, %v, %v", c, got, info, err)
		}
		_ = os.Remove(bundles[2])
	}
}

// The user of commands can make a link to any file of the place of a bundle, which PID 1 follows: what the user could not read stays unread.
func TestABundleShowsNobodyMoreThanBefore(t *testing.T) {
	dir := t.TempDir()
	out, err := execjournal.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(out)
	root, file, bundle := uint32(os.Getuid()), filepath.Join(dir, "file"), filepath.Join(dir, "bundle") //nolint:gosec // an ID is not negative
	if err := errors.Join(os.WriteFile(file, []byte("text"), 0o600), os.Symlink(file, bundle)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who            passwd.Identity
		source, result fs.FileMode
	}{
		{passwd.Identity{UID: root + 1, GID: root + 1}, 0o600, 0o400},
		{passwd.Identity{UID: root + 1, GID: root + 1}, 0o640, 0o400},
		{passwd.Identity{UID: root + 1, GID: root + 1}, 0o604, 0o444},
		{passwd.Identity{UID: root + 1, GID: uint32(os.Getgid())}, 0o640, 0o444}, //nolint:gosec // the same
		{passwd.Identity{UID: root, GID: root}, 0o600, 0o444},
	} {
		if err := os.Chmod(file, c.source); err != nil {
			t.Fatal(err)
		}
		if _, err := putRoots(out, execjournal.AuthoritySecret, execjournal.Secret{}, []string{bundle}, c.who); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, execjournal.AuthoritySecret))
		if err != nil || info.Mode() != c.result {
			t.Errorf("%+v: %v, %v", c, info.Mode(), err)
		}
	}
}

// A bundle that is too large loses whole certificates, and a warning says so once.
func TestABundleThatIsTooLarge(t *testing.T) {
	b, path := newBox(t), filepath.Join(t.TempDir(), "bundle")
	const certificate = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
	if err := os.WriteFile(path, []byte(strings.Repeat(certificate, 5<<20/len(certificate))), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.dir.PutSecret(sandbox, "", execjournal.AuthoritySecret, execjournal.Secret{Value: []byte("authority\n"), Roots: true}); err != nil {
		t.Fatal(err)
	}
	b.args = append(b.args, "--bundle="+path)
	b.boot()
	want := []string{"secret _authority: " + path + " has more than 4 MiB; programs trust the first part of it only"}
	b.until("the warning", func() bool { return slices.Equal(b.dir.SecretProblems(sandbox), want) })
	got, err := os.ReadFile(filepath.Join(b.paths.Out, execjournal.SecretsDir, execjournal.AuthoritySecret))
	if err != nil || !strings.HasSuffix(string(got), "\n"+certificate+"\nauthority\n") || len(got) > 4<<20+100 || len(got) < 4<<20-100 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	b.stop()
}

// What root of the sandbox removes comes back.
func TestRemovedSecretsComeBack(t *testing.T) {
	b := newBox(t)
	token := filepath.Join(t.TempDir(), "token")
	b.putSecret("token", token, "value")
	b.boot()
	b.shows(token, "value")
	for _, path := range []string{filepath.Join(b.paths.Out, execjournal.SecretsDir, "token"), filepath.Join(b.paths.Out, execjournal.SecretsDir)} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		b.shows(token, "value")
	}
	b.stop()
}
