//go:build docker

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// builtImage builds an image from a Dockerfile, and from files beside it, and removes it when the test ends.
func builtImage(t testing.TB, recipe string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	image := "agbox-e2e-" + strings.ToLower(filepath.Base(filepath.Dir(dir))) + ":" + filepath.Base(dir) + "-" + filepath.Base(must(os.MkdirTemp(dir, "x"))(t))
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("docker", "build", "-q", "-t", image, "-f", "-", dir)
	build.Stdin = strings.NewReader(recipe)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", "-f", image).Run() })
	return image
}

// withoutAgbox is the base image without its user agbox.
const withoutAgbox = "FROM agbox-base:dev\nUSER 0\nRUN sed -i /agbox/d /etc/passwd /etc/group && rm -rf /home/agbox && chown 0:0 /workspace\n"

// aboutUser prints who runs it, and fails unless that user may use its home and the workspace.
const aboutUser = `id -u; id -g; echo $USER $HOME; cd; touch mine /workspace/mine`

// Commands run as agbox, with the numbers of the configuration where the image lacks that user, and never as root by default.
func TestCommandsRunAsAgboxInEveryImage(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nhost_uid = 1234\nhost_gid = 1235\n")
	defer func() { d.TB = t }()
	const made = "1234\n1235\nagbox /home/agbox\n"
	for name, c := range map[string]struct{ recipe, user, script, want string }{
		"it has agbox":                    {"FROM agbox-base:dev", "", aboutUser, "1000\n1000\nagbox /home/agbox\n"},
		"agbox has another number":        {withoutAgbox + "RUN echo agbox:x:4242:4242::/home/agbox:/bin/sh >> /etc/passwd && mkdir -p /home/agbox && chown 4242:4242 /home/agbox /workspace", "", aboutUser, "4242\n4242\nagbox /home/agbox\n"},
		"no agbox":                        {withoutAgbox, "", aboutUser + "; id -un; id -gn; ls -ld /home/agbox /workspace | cut -c1-10", made + "agbox\nagbox\ndrwxr-xr-x\ndrwxr-xr-x\n"},
		"its files in the workspace":      {withoutAgbox + "RUN touch /workspace/theirs", "", aboutUser, made},
		"another user has the number":     {withoutAgbox + "RUN echo node:x:1234:1234::/:/bin/sh >> /etc/passwd", "", aboutUser + "; id -un; id -u node", made + "agbox\n1234\n"},
		"a USER directive":                {withoutAgbox + "RUN echo app:x:77:77::/:/bin/sh >> /etc/passwd\nUSER app", "", aboutUser, made},
		"no /etc":                         {withoutAgbox + "RUN rm -f /etc/passwd /etc/group", "", aboutUser + "; id -un", made + "agbox\n"},
		"a passwd that is a link":         {withoutAgbox + "RUN mv /etc/passwd /var/passwd && ln -s /var/passwd /etc/passwd", "", aboutUser + "; id -un", made + "agbox\n"},
		"the spec names root":             {withoutAgbox, "root", "id -u; echo $USER $HOME; ls -d /home/agbox || true", "0\nroot /root\n"},
		"the spec names agbox":            {withoutAgbox, "agbox", aboutUser, made},
		"agbox is removed in the sandbox": {withoutAgbox + "RUN chmod 666 /etc/passwd && chmod 777 /etc", "", "rm /etc/passwd; id -u", "1234\n"},
		"the home belongs to root":        {withoutAgbox + "RUN mkdir -p /home/agbox/.cache && touch /home/agbox/.profile", "", aboutUser, made},
		"the home is a link to elsewhere": {withoutAgbox + "RUN mkdir -p /opt/x /home && ln -s /opt/x /home/agbox", "", "id -u; ls -ldn /opt/x | tr -s ' ' | cut -d' ' -f3", "1234\n0\n"},
		"scratch and one static program":  {"FROM scratch\nCOPY --from=agbox-base:dev /bin/busybox /bin/sh", "", "exec /bin/sh id -u", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d.TB = t
			id := d.create(&agboxv1.CreateSpec{Image: builtImage(t, c.recipe, nil), User: c.user})
			d.await(id, ready)
			if name == "scratch and one static program" { // busybox under the name sh is sh only
				if got := d.sh(id, `read -r _ uid _ < /proc/self/status; while read -r key uid _; do case $key in Uid:) echo $uid; esac; done < /proc/self/status; echo $USER $HOME; cd; echo > mine; echo > /workspace/mine`); got != "1234\nagbox /home/agbox\n" {
					t.Errorf("got %q", got)
				}
				return
			}
			if got := d.sh(id, c.script); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if name == "agbox is removed in the sandbox" {
				if got := d.sh(id, c.script); got != c.want {
					t.Errorf("afterwards got %q, want %q", got, c.want)
				}
			}
		})
	}
}

// The user, the owner of copies and the owner of directories that the engine makes for mounts are the same, and stay so across a resume,
// also when the configuration has changed meanwhile.
func TestTheUserAgboxStaysTheSame(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nhost_uid = 1234\nhost_gid = 1235\n")
	src := t.TempDir()
	for _, dir := range []string{src, filepath.Dir(src)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(src, "f"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	stat := func() string {
		return d.docker("run", "--rm", "-v", src+":/s", baseImage, "stat", "-c", "%u:%g", "/s", "/s/f")
	}
	owners := stat()
	id := d.create(&agboxv1.CreateSpec{
		Image:    builtImage(t, withoutAgbox, nil),
		Security: &agboxv1.SecuritySpec{Profile: "hardened"}, // PID 1 has few capabilities
		Copies:   []*agboxv1.CopySpec{{Source: src, Target: "/workspace/copy"}},
		Mounts:   []*agboxv1.MountSpec{{Source: src, Target: "/home/agbox/.config/tool/files", Writable: true}},
		RequiredServices: []*agboxv1.ServiceSpec{{
			Name: "db", Image: baseImage, Command: []string{"sleep", "1d"}, Healthcheck: &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}},
			PostStartOnPrimary: []string{"id -u > /workspace/hook"},
		}},
	})
	d.await(id, ready)
	check := func(when string) {
		t.Helper()
		script := `id -u; id -g; cat /workspace/hook; cd; stat -c %u:%g . .config .config/tool /workspace/copy/f; touch .config/mine .config/tool/mine`
		const want = "1234\n1235\n1234\n1234:1235\n1234:1235\n1234:1235\n1234:1235\n"
		if got := d.sh(id, script); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
		if now := stat(); now != owners {
			t.Errorf("%s: the owners of the mount changed from %q to %q", when, owners, now)
		}
	}
	check("at first")
	d.stop()
	d.conf = "[runtime]\nhost_uid = 99\n"
	d.start()
	check("after a restart of the daemon")
	d.stopBox(id)
	d.await(id, stopped)
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
	d.await(id, ready)
	check("after a resume")
}
