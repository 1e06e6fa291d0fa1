//go:build docker

package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

// secretFile is a file of the host whose content only checksums may show.
type secretFile struct {
	testing.TB
	path string
}

func newSecretFile(t testing.TB, value string) secretFile {
	f := secretFile{t, filepath.Join(t.TempDir(), "token")}
	f.replace(value)
	return f
}

func (f secretFile) replace(value string) {
	f.Helper()
	if err := os.WriteFile(f.path+".new", []byte(value), 0o600); err != nil {
		f.Fatal(err)
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		f.Fatal(err)
	}
}

func sum(value string) string { return fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(value))) }

// shows waits until a path in the sandbox has that content, and returns how long it took.
func (d *daemon) shows(id, target, value string) time.Duration {
	d.Helper()
	began := time.Now()
	d.eventually(target+" has the value", func() error {
		if got := d.sh(id, "sha256sum < "+target+" || true"); got != sum(value) {
			return fmt.Errorf("it has %s", got)
		}
		return nil
	})
	return time.Since(began)
}

// leaks looks for a value in all that the daemon keeps and says, but not in the directories of secrets.
func (d *daemon) leaks(value string, texts ...string) {
	d.Helper()
	for _, text := range append(texts, d.log.tail(1<<20)) {
		if strings.Contains(text, value) {
			d.Errorf("the value is in:\n%s", text)
		}
	}
	err := filepath.WalkDir(d.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasSuffix(path, ".secret") || filepath.Base(filepath.Dir(path)) == execjournal.SecretsDir ||
			filepath.Base(filepath.Dir(filepath.Dir(path))) == "services" {
			return nil //nolint:nilerr // sandboxes come and go
		}
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(value)) {
			d.Errorf("%s has the value", path)
		}
		return nil
	})
	if err != nil {
		d.Error(err)
	}
}

func TestSecretsReachTheUserOfTheSandboxAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ profile, user, image, uid string }{
		"standard":             {"standard", "", baseImage, "1000"},
		"hardened":             {"hardened", "", baseImage, "1000"},
		"hardened, other user": {"hardened", "2000:2000", baseImage, "2000"},
		"root":                 {"standard", "root", baseImage, "0"},
		"no agbox in it":       {"hardened", "", "", "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, "", "")
			if c.image == "" {
				c.image = builtImage(t, withoutAgbox, nil)
			}
			const value = "s3cret-0123456789"
			source := newSecretFile(t, value)
			id := d.create(&agboxv1.CreateSpec{
				Image: c.image, User: c.user, Security: &agboxv1.SecuritySpec{Profile: c.profile},
				Secrets: []*agboxv1.SecretSpec{
					{Name: "token", File: source.path, Target: "/run/secrets/token"},
					{Name: "conf", File: source.path, Target: "/home/agbox/.config/tool/token"},
					{Name: "later", File: source.path},
				},
			})
			d.await(id, ready)
			d.shows(id, "/run/secrets/token", value)
			d.shows(id, "/home/agbox/.config/tool/token", value)
			got := d.sh(id, `stat -L -c '%u %a' /run/secrets/token; ls /run/secrets /run/agbox/out/secrets; stat -c %U /home/agbox/.config /home/agbox/.config/tool /run/secrets | sort -u | wc -l`)
			const owners = "2\n" // a new directory belongs to the owner of its parent
			if want := c.uid + " 400\n/run/agbox/out/secrets:\nconf\ntoken\n\n/run/secrets:\ntoken\n" + owners; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if c.uid != "0" {
				other := must(d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, User: "nobody", Command: []string{"sh", "-c", `
					cat /run/secrets/token /run/agbox/out/secrets/token /run/agbox/ctl/exec/*.secret && exit 1
					echo forged > /run/secrets/token; rm -f /run/secrets/token /run/agbox/out/secrets/token && exit 1
					ln -sf /etc/passwd /run/secrets/token; exit 0`}}))(t)
				if st := d.ended(other.GetExecId()); st.GetExitCode() != 0 {
					t.Errorf("another user: %+v", st)
				}
				d.sh(id, `cat /run/agbox/ctl/exec/*.secret && exit 1
					echo forged > /run/secrets/token && exit 1
					rm -f /run/secrets/token && exit 1
					mv /run/agbox/out/secrets/conf /run/agbox/out/secrets/token && exit 1; true`)
			}
			d.shows(id, "/run/secrets/token", value)
			inspected := d.docker("inspect", naming.Primary(id))
			handle := must(d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id}))(t).GetSandbox()
			if len(handle.GetWarnings()) > 0 {
				t.Error(handle.GetWarnings())
			}
			described := d.agbox("describe", id)
			if !strings.Contains(described, "token of "+source.path+" at /run/secrets/token") || !strings.Contains(described, "later of "+source.path+", not delivered") {
				t.Error(described)
			}
			d.agbox("backup", filepath.Join(d.home, "b.backup"))
			d.leaks(value, inspected, handle.String(), described, fmt.Sprint(d.events(id)))
		})
	}
}

func TestASecretIsReplacedInPlace(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	source := newSecretFile(t, "value-1")
	spec := &agboxv1.CreateSpec{Image: baseImage, Secrets: []*agboxv1.SecretSpec{{Name: "token", File: source.path, Target: "/run/secrets/token"}}}
	id := d.named("web", spec)
	d.await(id, ready)
	container := d.inspectIfThere(naming.Primary(id)).ID
	d.shows(id, "/run/secrets/token", "value-1")
	source.replace("value-2")
	t.Logf("the new value was seen after %s", d.shows(id, "/run/secrets/token", "value-2"))

	d.kill()
	source.replace("value-3")
	d.start()
	d.shows(id, "/run/secrets/token", "value-3")

	spec.Secrets = []*agboxv1.SecretSpec{{Name: "token", File: source.path, Target: "/etc/token"}, {Name: "more", File: source.path, Target: "/run/secrets/more"}}
	d.update(id, spec)
	d.shows(id, "/etc/token", "value-3")
	d.shows(id, "/run/secrets/more", "value-3")
	if got := d.sh(id, "ls /run/secrets"); got != "more\n" {
		t.Errorf("the former target is left: %q", got)
	}

	d.stopBox(id)
	d.await(id, stopped)
	if err := os.Remove(source.path); err != nil {
		t.Fatal(err)
	}
	d.restart()
	d.agbox("resume", "web", "--wait")
	d.shows(id, "/etc/token", "value-3")
	if got := d.agbox("describe", "web"); !strings.Contains(got, "does not exist on this host; the sandbox keeps the last value") {
		t.Error(got)
	}
	spec.Secrets = spec.Secrets[:1]
	d.update(id, spec) // although its file is gone
	d.eventually("the secret is withdrawn", func() error {
		if got := d.sh(id, "ls -A /run/secrets; ls /run/agbox/out/secrets"); got != "token\n" {
			return fmt.Errorf("there is %q", got)
		}
		return nil
	})
	if now := d.inspectIfThere(naming.Primary(id)).ID; now != container {
		t.Errorf("the container was replaced")
	}
	d.remove(id)
}

// A power failure may take the directory that secrets are delivered into. The next resume makes it again.
func TestSecretsAfterTheirDirectoryIsLost(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	source := newSecretFile(t, "value-1")
	id := d.named("web", &agboxv1.CreateSpec{Secrets: []*agboxv1.SecretSpec{{Name: "token", File: source.path, Target: "/run/secrets/token"}}})
	d.await(id, ready)
	d.stopBox(id)
	d.await(id, stopped)
	d.kill()
	if err := os.RemoveAll(d.data("s")); err != nil {
		t.Fatal(err)
	}
	d.start()
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
	d.await(id, ready)
	d.shows(id, "/run/secrets/token", "value-1")
	d.remove(id)
}

// A service reads its secrets as whatever user its program has, and can change none.
func TestSecretsOfAService(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	source := newSecretFile(t, "value-1")
	db := web("db", 0)
	db.Secrets = []*agboxv1.SecretSpec{{Name: "password", File: source.path, Target: "/run/secrets/password"}}
	spec := &agboxv1.CreateSpec{Image: baseImage, Security: &agboxv1.SecuritySpec{Profile: "hardened"}, RequiredServices: []*agboxv1.ServiceSpec{db}}
	id := d.named("shop", spec)
	d.await(id, ready)
	container := naming.Service(id, "db")
	shows := func(value string) {
		t.Helper()
		d.eventually("the service has "+value, func() error {
			if got := d.docker("exec", "-u", "nobody", container, "sh", "-c", "sha256sum < /run/secrets/password; ls -A /run/secrets"); got != sum(value)+"password\n" {
				return fmt.Errorf("it has %s", got)
			}
			return nil
		})
	}
	shows("value-1")
	d.docker("exec", "-u", "root", container, "sh", "-c", "echo forged > /run/secrets/password || touch /run/secrets/x || rm /run/secrets/password && exit 1; exit 0")
	source.replace("value-2")
	shows("value-2")
	if got := d.sh(id, "ls -A /run/secrets 2>/dev/null || echo none"); got != "none\n" {
		t.Errorf("the primary has the secrets of its service: %q", got)
	}
	was := d.inspectIfThere(container).ID
	db.Secrets[0].Target = "/run/secrets/renamed"
	d.update(id, spec)
	d.eventually("the secret is renamed", func() error {
		if got := d.docker("exec", container, "ls", "-A", "/run/secrets"); got != "renamed\n" {
			return fmt.Errorf("there is %q", got)
		}
		return nil
	})
	if d.inspectIfThere(container).ID != was {
		t.Error("the service was replaced")
	}
	d.stopBox(id)
	d.await(id, stopped)
	if err := os.Remove(source.path); err != nil {
		t.Fatal(err)
	}
	d.restart()
	d.agbox("resume", "shop", "--wait")
	if got := d.agbox("describe", "shop"); !strings.Contains(got, "secret password of service db: ") || !strings.Contains(got, " at /run/secrets/renamed of service db") {
		t.Error(got)
	}
	d.leaks("value-2", d.docker("inspect", container))
	d.remove(id)
}

// What a program prints before it dies is shown to users, with secrets redacted; and the host's own files are no secrets.
func TestSecretsInErrors(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	const value = "s3cret-9876543210"
	source := newSecretFile(t, value+"\n")
	id := d.create(&agboxv1.CreateSpec{
		Image: baseImage, Command: []string{"sh", "-c", "echo token $(cat /run/secrets/token) refused >&2; sleep 1; exit 3"},
		Secrets: []*agboxv1.SecretSpec{{Name: "token", File: source.path, Target: "/run/secrets/token"}},
	})
	d.await(id, failed)
	if got := d.sandbox(id).GetErrorMessage(); strings.Contains(got, value) || !strings.Contains(got, "token [redacted] refused") {
		t.Error(got)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(d.database(), link); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		d.database():           "which is agboxd's own",
		link:                   "which is agboxd's own",
		source.path + "-gone":  "does not exist on this host",
		filepath.Dir(link):     "is not a regular file",
		"/proc/self/mountinfo": "the kernel's",
	} {
		err := d.judge(&agboxv1.CreateSpec{Image: baseImage, Secrets: []*agboxv1.SecretSpec{{Name: "token", File: file, Target: "/t"}}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "secrets[token].file") {
			t.Errorf("%s: %v", file, err)
		}
	}
}
