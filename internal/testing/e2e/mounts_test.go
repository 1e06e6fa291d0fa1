//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
)

// A home directory may be mounted; agboxd's own directories below it stay covered, also after restarts of daemon and sandbox.
func TestAgboxsOwnPathsAreCoveredInAMountThatContainsThem(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	if err := os.Chmod(d.home, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	id := d.create(&agboxv1.CreateSpec{User: "0", Mounts: []*agboxv1.MountSpec{{Source: d.home, Target: "/h", Writable: true}}})
	d.await(id, ready)
	check := func(when string) {
		t.Helper()
		const script = `cd /h && ls -A data/agents-sandbox run/agbox config/agents-sandbox | tr '\n' ' '; ` +
			`touch data/agents-sandbox/x 2>/dev/null && echo written; mv data/agents-sandbox data/y 2>/dev/null && echo moved; touch mine && echo mine`
		if got, want := d.sh(id, script), "config/agents-sandbox:  data/agents-sandbox:  run/agbox: mine\n"; got != want {
			t.Errorf("%s the sandbox sees %q, want %q", when, got, want)
		}
		if w := d.sandbox(id).GetWarnings(); len(w) > 0 {
			t.Errorf("%s warnings %q", when, w)
		}
	}
	check("at first")
	d.restart()
	check("after a restart of the daemon")
	must(d.StopSandbox(d.ctx(), &agboxv1.StopSandboxRequest{SandboxId: id}))(t)
	d.await(id, stopped)
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
	d.await(id, ready)
	check("after a resume")
}

// The kernel renames no mount point, so no process in a sandbox can move a cover with a directory above it.
func TestNoDirectoryAboveAgboxsOwnCanBeMoved(t *testing.T) {
	t.Parallel()
	home := must(os.MkdirTemp("", "agbox-e2e-"))(t)
	if err := os.Chmod(home, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	d := newDaemonIn(t, home, "", fmt.Sprintf("[artifacts]\nexec_output_root = %q\n", home+"/a/b/c/logs"))
	above := []string{"a", "a/b", "a/b/c", "data", "run", "config"}
	own := []string{"a/b/c/logs", "data/agents-sandbox", "run/agbox", "config/agents-sandbox"}
	before := make([]os.FileInfo, len(own))
	for i, p := range own {
		before[i] = must(os.Stat(filepath.Join(home, p)))(t)
	}
	for _, profile := range []string{"standard", "hardened"} {
		mounts := []*agboxv1.MountSpec{{Source: home, Target: "/h", Writable: true}, {Source: home + "/a", Target: "/a", Writable: true}}
		id := d.create(&agboxv1.CreateSpec{User: "0", Mounts: mounts, Security: &agboxv1.SecuritySpec{Profile: profile}})
		d.await(id, ready)
		// To a sibling, so that no move becomes a copy.
		d.sh(id, fmt.Sprintf(`cd /h; for p in %s /a/b /a/b/c /a/b/c/logs; do mv $p $p-moved; rmdir $p; done 2>/dev/null; true`,
			strings.Join(append(above, own...), " ")))
		for i, p := range own {
			if now, err := os.Stat(filepath.Join(home, p)); err != nil || !os.SameFile(before[i], now) {
				t.Errorf("%s: %s is not where it was: %v", profile, p, err)
			}
		}
		if got := d.sh(id, `touch /h/a/b/c/mine /h/data/mine && ls -A /h/a/b/c /a/b/c/logs | tr '\n' ' '`); got != "/a/b/c/logs:  /h/a/b/c: logs mine " {
			t.Errorf("%s: the sandbox sees %q", profile, got)
		}
		if w := d.sandbox(id).GetWarnings(); len(w) > 0 {
			t.Errorf("%s: warnings %q", profile, w)
		}
		d.remove(id)
	}
}

func TestMountsThatThePolicyRefuses(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	own := filepath.Join(d.home, "data", "agents-sandbox")
	link := filepath.Join(d.home, "link")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	mount := func(source string, writable bool) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: source, Target: "/mnt", Writable: writable}}}
	}
	copied := func(source string, patterns ...string) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Copies: []*agboxv1.CopySpec{{Source: source, Target: "/mnt", ExcludePatterns: patterns}}}
	}
	refused := func(what string, spec *agboxv1.CreateSpec, field, part string) {
		t.Helper()
		if err := d.judge(spec); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("the database", mount(own+"/ids.db", false), "mounts[0].source", "agboxd's own")
	refused("the data directory by a link", mount(link, false), "mounts[0].source", "symbolic link")
	refused("the socket's directory", mount(filepath.Join(d.home, "run", "agbox"), true), "mounts[0].source", "agboxd's own")
	refused("the root", mount("/", false), "mounts[0].source", "mounts.allow_system")
	refused("the engine's socket", mount("/run/docker.sock", true), "mounts[0].source", "mounts.allow_system")
	refused("the engine's data", mount("/var/lib/docker", false), "mounts[0].source", "mounts.allow_system")
	refused("the configuration of the system", mount("/etc", true), "mounts[0].source", "only read-only")
	refused("a copy of the database", copied(own+"/ids.db"), "copies[0].source", "agboxd's own")
	refused("a copy of what holds it", copied(d.home), "copies[0].source", "exclude it")
	for what, spec := range map[string]*agboxv1.CreateSpec{
		"the configuration of the system, read-only": mount("/etc", false),
		"a copy without it":                          copied(d.home, "/data", "run", "/config/agents-sandbox"),
	} {
		if err := d.judge(spec); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	d.conf = "[mounts]\nallow_system = true\nallow = [\"/run\", \"" + d.home + "\"]\n"
	d.restart()
	refused("what is outside", mount("/etc", false), "mounts[0].source", "mounts.allow")
	refused("the database all the same", mount(own+"/ids.db", false), "mounts[0].source", "agboxd's own")
	if err := d.judge(mount("/run/docker.sock", true)); err != nil {
		t.Errorf("the engine's socket with allow_system: %v", err)
	}
}

// A sandbox that was accepted under other rules resumes, and says what would be refused.
func TestASandboxThatWouldBeRefusedNowResumes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[mounts]\nallow_system = true\n")
	id := d.create(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: "/boot", Target: "/mnt"}}})
	d.await(id, ready)
	must(d.StopSandbox(d.ctx(), &agboxv1.StopSandboxRequest{SandboxId: id}))(t)
	d.await(id, stopped)
	d.conf = ""
	d.restart()
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
	d.await(id, ready)
	if w := d.sandbox(id).GetWarnings(); len(w) != 1 || !strings.Contains(w[0], `mounts[0].source "/boot"`) {
		t.Errorf("warnings %q", w)
	}
}

// The data root of an engine is refused, and so is a directory that holds it, by each of its paths.
func TestTheDataRootOfTheEngineIsRefused(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a private engine and a bind mount need root")
	}
	dir := must(filepath.EvalSymlinks(must(os.MkdirTemp("", "agbox-root-"))(t)))(t)
	data, other := filepath.Join(dir, "one", "docker"), filepath.Join(dir, "other", "docker")
	t.Cleanup(func() {
		_ = exec.Command("umount", "-l", other, data).Run() // the engine makes its data root a mount
		_ = os.RemoveAll(dir)
	})
	script := `mkdir -p $0 $1 && mount --bind $0 $1`
	if out, err := exec.Command("sh", "-c", script, data, other).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e := dockerd.Start(t, "--data-root", data)
	d := newDaemon(t, e.Host(), "")
	d.eventually("the engine has answered", func() error {
		if p := must(d.Ping(d.ctx(), &agboxv1.PingRequest{}))(t).GetEngineProblem(); p != "" {
			return errors.New(p)
		}
		return nil
	})
	d.restart() // from then on it is on record: no create waits for the engine's answer
	for source, want := range map[string]string{
		data: "lies in " + data, data + "/containers": "lies in " + data, filepath.Dir(data): "contains " + data,
		other: "lies in " + other, filepath.Dir(other): "contains " + other, dir: "contains " + data,
	} {
		for _, writable := range []bool{true, false} {
			err := d.judge(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: source, Target: "/mnt", Writable: writable}}})
			if !isCode(err, codes.InvalidArgument) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "mounts.allow_system") {
				t.Errorf("%s, writable %t: got %v, want %q", source, writable, err, want)
			}
		}
		if err := d.judge(&agboxv1.CreateSpec{Copies: []*agboxv1.CopySpec{{Source: source, Target: "/mnt"}}}); !isCode(err, codes.InvalidArgument) {
			t.Errorf("a copy of %s: %v", source, err)
		}
	}
	if err := d.judge(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: d.home, Target: "/mnt", Writable: true}}}); err != nil {
		t.Errorf("a directory beside it: %v", err)
	}
}

// judge has a spec checked as a create checks it.
func (d *daemon) judge(spec *agboxv1.CreateSpec) error {
	d.Helper()
	spec.Image = baseImage
	_, err := d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: spec, DryRun: true})
	return err
}
