//go:build docker

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
	"github.com/agbox/agbox/internal/attack"
	"github.com/agbox/agbox/internal/attack/judge"
	"github.com/agbox/agbox/internal/host/naming"
)

// On an engine with userns-remap, root of a sandbox is an unprivileged user of the host, who owns the sandbox's own directories there.
func TestAnEngineThatRemapsUsers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a private engine needs root")
	}
	e := dockerd.StartRemapped(t, "--live-restore")
	loadImage(t, e, baseImage)
	surrounded(t, e)
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.host, d.netns, d.engine = e.Host(), e.Netns(), fmt.Sprintf("resolvers = [%q]\n", lanRouter)
	d.start()
	within := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			d.TB = t
			f(t)
		})
		d.TB = t
	}
	within("a life with all kinds of files", func(t *testing.T) { remappedFiles(t, d) })
	within("doctor", func(t *testing.T) {
		if got := d.agbox("doctor"); !strings.Contains(got, fmt.Sprintf("root in a sandbox is user %d of the host", dockerd.RemappedRoot)) {
			t.Errorf("doctor says\n%s", got)
		}
	})
	within("a mount of the host", func(t *testing.T) { remappedMount(t, d) })
	within("agents and a pause", func(t *testing.T) { remappedAgents(t, d) })
	within("out of memory", func(t *testing.T) { remappedMemory(t, d) })
	within("the self-test", func(t *testing.T) {
		strict := d.named("strict", &agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Mode: "internal"}, Security: &agboxv1.SecuritySpec{Profile: "hardened"}})
		root := d.named("root", &agboxv1.CreateSpec{User: "root"})
		d.await(strict, ready)
		d.await(root, ready)
		wantVerdicts(t, "strict", d.attacked("strict"), nil)
		wantVerdicts(t, "root", d.attacked("root"), map[string]string{attack.LAN: judge.Allowed, attack.Setuid: judge.Allowed, attack.Capabilities: judge.Allowed})
		d.remove(strict)
		d.remove(root)
	})
	within("kill -9 of the engine and of agboxd", func(t *testing.T) { remappedKills(t, d, e) })
}

// owner is the user and the group of a file of the host.
func owner(t *testing.T, path string) string {
	t.Helper()
	return strings.TrimSpace(local(t, t.TempDir(), "stat -c %u:%g "+path))
}

func remappedFiles(t *testing.T, d *daemon) {
	source := filepath.Join(t.TempDir(), "src")
	write(t, filepath.Join(source, "f"), "copied\n")
	secret := newSecretFile(t, "the value")
	db := web("db", 0)
	db.Secrets = []*agboxv1.SecretSpec{{Name: "token", File: secret.path, Target: "/run/secrets/token"}}
	for _, profile := range []string{"standard", "hardened"} {
		spec := withProfile(profile, &agboxv1.CreateSpec{
			Copies:  []*agboxv1.CopySpec{{Source: source, Target: "/workspace"}},
			Secrets: []*agboxv1.SecretSpec{{Name: "token", File: secret.path, Target: "/run/secrets/token"}},
			Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/data"}}, RequiredServices: []*agboxv1.ServiceSpec{db},
		})
		spec.Security.ReadOnlyRoot = true
		id := d.named(profile, spec)
		d.await(id, ready)
		for _, container := range []string{naming.Primary(id), naming.Service(id, "db")} {
			pid := strings.TrimSpace(d.docker("inspect", "-f", "{{.State.Pid}}", container))
			users, status := strings.Join(strings.Fields(d.read("/proc/"+pid+"/uid_map")), " "), d.read("/proc/"+pid+"/status")
			if users != "0 500000 65536" || !strings.Contains(status, "\nUid:\t500000\t") {
				t.Errorf("%s: the users are %q, and its main process is\n%s", container, users, status)
			}
		}
		d.shows(id, "/run/secrets/token", "the value")
		if got := d.docker("exec", naming.Service(id, "db"), "cat", "/run/secrets/token"); got != "the value" {
			t.Errorf("the service reads %q", got)
		}
		if got := d.sh(id, "id -u; cat f; stat -c %U f /data; echo kept >/data/f; echo kept >/workspace/kept"); got != "1000\ncopied\nagbox\nagbox\n" {
			t.Errorf("%s: %q", profile, got)
		}
		d.halt(id)
		if got := d.agbox("cat", profile, "/workspace/kept"); got != "kept\n" {
			t.Errorf("%s: of the stopped sandbox cat prints %q", profile, got)
		}
		d.restart()
		d.resume(id)
		if got := d.sh(id, "cat /data/f /workspace/kept"); got != "kept\nkept\n" {
			t.Errorf("%s: after a resume: %q", profile, got)
		}
		secret.replace("the next one")
		d.shows(id, "/run/secrets/token", "the next one")
		secret.replace("the value")
		d.remove(id)
		d.agbox("volume", "rm", profile+"/data")
	}
}

// remappedMount: a mount has the owners of the host, whose user ID is 65534 inside, but for those of the range.
func remappedMount(t *testing.T, d *daemon) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), "host\n")
	id := d.create(&agboxv1.CreateSpec{User: "0", Mounts: []*agboxv1.MountSpec{{Source: dir, Target: "/m", Writable: true}}})
	d.await(id, ready)
	if got := d.sh(id, "cat /m/f; stat -c %u /m/f; touch /m/new 2>/dev/null || echo refused"); got != "host\n65534\nrefused\n" {
		t.Errorf("of a mount of host root, root sees %q", got)
	}
	if err := os.Chown(dir, dockerd.RemappedRoot, dockerd.RemappedRoot); err != nil {
		t.Fatal(err)
	}
	d.sh(id, "touch /m/new")
	if got := owner(t, filepath.Join(dir, "new")); got != "500000:500000" {
		t.Errorf("what root makes in a mount belongs to %s", got)
	}
	d.remove(id)
}

func remappedAgents(t *testing.T, d *daemon) {
	tool := &agboxv1.MountSpec{Source: filepath.Join(binaries, "testagent"), Target: "/bin/testagent"}
	c := &crew{daemon: d, box: d.create(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{tool}})}
	d.await(c.box, ready)
	c.remember()
	c.restart()
	for _, f := range formats {
		c.kill9(f.id)
		c.awaitLife(f.id, 2)
		if got := c.ask(f.id, "after", "what did I say?"); got != "you said: a plum" {
			t.Errorf("%s says %q", f.id, got)
		}
	}
	gVisorsPause(t, d, c.box)
	d.remove(c.box)
}

func remappedMemory(t *testing.T, d *daemon) {
	id := d.create(&agboxv1.CreateSpec{MemoryLimit: "64MiB"})
	d.await(id, ready)
	if st := d.ended(d.exec(id, "sh", "-c", "head -c 1000000000 /dev/zero | tail").GetExecId()); st.GetErrorCode() != "EXEC_OOM" && st.GetExitCode() != 137 {
		t.Errorf("the exec: %v", st)
	}
	d.sh(id, "true")
	d.remove(id)
}

func remappedKills(t *testing.T, d *daemon, e *dockerd.Engine) {
	id := d.create(nil)
	d.await(id, ready)
	ctl := d.data("s")
	owners := func() string { return local(t, t.TempDir(), "stat -c '%u:%g %a' "+ctl+"/*/ctl/exec "+ctl+"/*/out") }
	before := owners()
	if !strings.HasPrefix(before, "500000:500000 755") {
		t.Errorf("the directories of the sandbox belong to %s", before)
	}
	const lines = 40
	x := d.exec(id, counting(lines)...)
	d.printed(x, 3)
	e.Kill()
	d.restart() // it does not know what the engine remaps
	d.sh(id, "echo without an engine")
	e.Start()
	d.wantCounted(x, lines)
	d.eventually("the engine is back", func() error {
		if p := must(d.Ping(d.ctx(), &agboxv1.PingRequest{}))(t).GetEngineProblem(); p != "" {
			return fmt.Errorf("%s", p)
		}
		return nil
	})
	d.halt(id)
	d.resume(id)
	if after := owners(); after != before {
		t.Errorf("the directories belonged to %s, and now to %s", before, after)
	}
	if got := strings.Fields(d.types(id)); slices.Contains(got, "FAILED") || slices.Contains(got, "RESTARTED") {
		t.Errorf("events: %s", got)
	}
	d.remove(id)
}
