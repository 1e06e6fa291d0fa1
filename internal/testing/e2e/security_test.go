//go:build docker

package e2e

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden files of this package")

// securityFields is what "docker inspect" says of a container that decides what its processes may do.
type securityFields struct {
	Privileged, PublishAllPorts, ReadonlyRootfs            bool
	CapAdd, CapDrop, SecurityOpt, GroupAdd, Binds          []string
	DeviceCgroupRules, VolumesFrom                         []string
	Devices                                                []any
	Sysctls                                                map[string]string
	IpcMode, PidMode, UTSMode, UsernsMode, Cgroup, Runtime string
	CgroupnsMode                                           string `json:",omitempty"` // checked by secured: hosts differ
	OomScoreAdj                                            int
	PidsLimit, Memory, ShmSize                             int64
	Tmpfs                                                  map[string]string
	MaskedPaths, ReadonlyPaths                             []string
	NetworkMode                                            string
	RestartPolicy                                          struct{ Name string }
	User                                                   string
	Init                                                   *bool
}

// secured reads them. What engines put there by themselves, and differ in, is reduced to what every one must have.
func (d *daemon) secured(container string) securityFields {
	d.Helper()
	var f securityFields
	if err := json.Unmarshal([]byte(d.docker("inspect", "-f", "{{json .HostConfig}}", container)), &f); err != nil {
		d.Fatal(err)
	}
	if version := strings.TrimSpace(d.docker("info", "-f", "{{.CgroupVersion}}")); version == "2" && f.CgroupnsMode != "private" {
		d.Errorf("on cgroup v2 the cgroup namespace is %q", f.CgroupnsMode)
	}
	f.CgroupnsMode = ""
	f.User = strings.TrimSpace(d.docker("inspect", "-f", "{{.Config.User}}", container))
	if f.NetworkMode != "host" && f.NetworkMode != "default" && f.NetworkMode != "bridge" && !strings.HasPrefix(f.NetworkMode, "container:") {
		f.NetworkMode = "its own"
	}
	f.MaskedPaths = common(f.MaskedPaths, "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware")
	f.ReadonlyPaths = common(f.ReadonlyPaths, "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
	for _, list := range []*[]string{&f.CapAdd, &f.CapDrop} {
		for i, c := range *list {
			(*list)[i] = strings.TrimPrefix(c, "CAP_") // engines differ
		}
		slices.Sort(*list)
	}
	return f
}

func common(have []string, want ...string) []string {
	return slices.DeleteFunc(want, func(path string) bool { return !slices.Contains(have, path) })
}

func withProfile(profile string, spec *agboxv1.CreateSpec) *agboxv1.CreateSpec {
	spec.Security = &agboxv1.SecuritySpec{Profile: profile}
	return spec
}

// What the engine is asked for is compared with a list that is kept by hand: see docs/decisions/0017-mounts-and-profiles.md.
func TestWhatTheEngineSaysOfEachProfile(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[security]\nallow = [\"NET_RAW\", \"SYS_PTRACE\", \"seccomp=unconfined\"]\n")
	got := map[string]securityFields{}
	for name, memory := range map[string]string{"standard": "", "hardened": "", "standard 48MiB": "48MiB", "hardened, read-only root": "", "standard, loosened": "", "hardened, loosened": ""} {
		profile := strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) })[0]
		db := web("db", 0)
		db.MemoryLimit = memory
		spec := withProfile(profile, &agboxv1.CreateSpec{Image: baseImage, MemoryLimit: memory, OptionalServices: []*agboxv1.ServiceSpec{db}})
		spec.Security.ReadOnlyRoot = strings.Contains(name, "read-only")
		if strings.Contains(name, "loosened") {
			spec.Security.CapabilitiesAdd, spec.Security.Seccomp = []string{"NET_RAW", "SYS_PTRACE"}, "unconfined"
		}
		id := d.create(spec)
		d.await(id, ready)
		d.eventually("the service", func() error {
			if d.inspectIfThere(naming.Service(id, "db")).ID == "" {
				return fmt.Errorf("is not there")
			}
			return nil
		})
		got[name] = d.secured(naming.Primary(id))
		got[name+" service"] = d.secured(naming.Service(id, "db"))
		if p := d.sandbox(id).GetSecurityProfile(); p != profile {
			t.Errorf("the profile is said to be %q", p)
		}
	}
	text := must(json.MarshalIndent(got, "", "  "))(t)
	const file = "testdata/inspect.golden.json"
	if *updateGolden {
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want := must(os.ReadFile(file))(t); strings.TrimSpace(string(want)) != string(text) {
		t.Errorf("docker inspect differs from %s:\n%s", file, text)
	}
}

// setuidImage has the hostile program, and once more as one that gives everybody root's identity.
func setuidImage(t testing.TB) string {
	t.Helper()
	image := "agbox-e2e-setuid:" + strings.ToLower(filepath.Base(t.TempDir()))
	dir := t.TempDir()
	recipe := "FROM " + baseImage + "\nUSER 0\nCOPY hostile /\nCOPY hostile /setuid\nRUN chmod 4755 /setuid\n"
	for name, content := range map[string][]byte{"Dockerfile": []byte(recipe), "hostile": must(os.ReadFile(filepath.Join(binaries, "hostile")))(t)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("docker", "build", "-q", "-t", image, dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", "-f", image).Run() })
	return image
}

// noPrivilege is what /proc/self/status says of a process that has no capability and can't gain any.
const noPrivilege = "CapInh:0 CapPrm:0 CapEff:0 CapBnd:0 CapAmb:0 NoNewPrivs:1"

// servicePrivilege is the same of root in a service, whose bounding set holds the capabilities of controller/profile. The first field, the
// inheritable set, is left out: some engines fill it.
const servicePrivilege = "CapPrm:00000000000004eb CapEff:00000000000004eb CapBnd:00000000000004eb CapAmb:0 NoNewPrivs:1"

// showPrivilege prints that line.
const showPrivilege = `set -- $(grep -E '^(Cap|NoNewPrivs)' /proc/self/status | sed 's/0000000000000000/0/'); ` +
	`while [ $# -gt 0 ]; do printf '%s%s ' "$1" "$2"; shift 2; done`

// Whatever starts a process in the primary of a hardened sandbox, whoever it runs as: it has nothing. Processes of its services have what
// their profile lists and can gain no more.
func TestEveryProcessOfAHardenedSandboxIsWithoutPrivilege(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	db := web("db", 0)
	db.Command[2] = showPrivilege + ">/tmp/service; " + db.Command[2]
	db.Healthcheck.Test[1] = showPrivilege + ">/tmp/healthcheck; " + db.Healthcheck.Test[1]
	db.PostStartOnPrimary = []string{showPrivilege + ">/tmp/hook"}
	for _, user := range []string{"", "0"} {
		id := d.create(withProfile("hardened", &agboxv1.CreateSpec{
			Image: baseImage, User: user, RequiredServices: []*agboxv1.ServiceSpec{db},
			Command: []string{"sh", "-c", showPrivilege + ">/tmp/main; exec sleep 1000000"},
		}))
		d.await(id, ready)
		d.eventually("the main process", func() error {
			if st := d.ended(d.exec(id, "test", "-s", "/tmp/main").GetExecId()); st.GetExitCode() != 0 {
				return fmt.Errorf("has not written yet")
			}
			return nil
		})
		// A command that is no agent: it writes its line and ends.
		agent := &agboxv1.AgentSpec{SandboxId: id, Command: []string{"sh", "-c", showPrivilege + ">/tmp/agent.new; mv /tmp/agent.new /tmp/agent; exec cat"}}
		must(d.agents().CreateAgent(d.ctx(), &agboxv1.CreateAgentRequest{AgentId: "agent-of-user-" + cmp.Or(user, "agbox"), Spec: agent}))(t)
		d.eventually("the agent's process", func() error {
			if st := d.ended(d.exec(id, "test", "-s", "/tmp/agent").GetExecId()); st.GetExitCode() != 0 {
				return fmt.Errorf("has not written yet")
			}
			return nil
		})
		for what, script := range map[string]string{
			"an exec": showPrivilege, "the main process": "cat /tmp/main", "a hook": "cat /tmp/hook", "an agent": "cat /tmp/agent",
			"a child of an exec's child": "sh -c 'sh -c \"$0\"' '" + strings.ReplaceAll(showPrivilege, "'", `'\''`) + "'",
		} {
			if got := strings.TrimSpace(d.sh(id, script)); got != noPrivilege {
				t.Errorf("user %q, %s has %s", user, what, got)
			}
		}
		for _, file := range []string{"service", "healthcheck"} {
			_, got, _ := strings.Cut(strings.TrimSpace(d.docker("exec", naming.Service(id, "db"), "cat", "/tmp/"+file)), " ")
			if got != servicePrivilege {
				t.Errorf("the %s of a service has %s", file, got)
			}
		}
		// PID 1 does what it must do for them all the same: cancel another user's tree, and stop.
		e := d.exec(id, "sh", "-c", "trap '' TERM; sleep 1000000 & wait")
		must(d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: e.GetExecId()}))(t)
		if st := d.ended(e.GetExecId()); st.GetState() != agboxv1.ExecState_EXEC_STATE_CANCELLED {
			t.Errorf("a cancelled exec is %s: %s", st.GetState(), st.GetError())
		}
		d.remove(id)
	}
}

// Processes of a hardened sandbox have the capabilities that its spec asks for, as any user, and no others. PID 1 starts and ends them as before.
func TestALoosenedSandboxHasWhatItAskedFor(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[security]\nallow = [\"NET_RAW\", \"SYS_PTRACE\", \"seccomp=unconfined\", \"no_new_privileges=false\"]\n")
	const asked = "0000000000082000" // SYS_PTRACE, NET_RAW
	const all = "CapInh:" + asked + " CapPrm:" + asked + " CapEff:" + asked + " CapBnd:" + asked + " CapAmb:" + asked
	no, yes := false, true
	loose := func(profile string, nnp *bool) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{
			Image: baseImage, Command: []string{"sh", "-c", showPrivilege + ">/tmp/main; exec sleep 1000000"},
			Security: &agboxv1.SecuritySpec{Profile: profile, CapabilitiesAdd: []string{"SYS_PTRACE", "NET_RAW"}, Seccomp: "unconfined", NoNewPrivileges: nnp},
		}
	}
	var ids []string
	for _, row := range []struct {
		profile string
		nnp     *bool
		want    string
	}{{"hardened", nil, all + " NoNewPrivs:1"}, {"hardened", &no, all + " NoNewPrivs:0"}, {"standard", &yes, "NoNewPrivs:1"}} {
		id := d.create(loose(row.profile, row.nnp))
		ids = append(ids, id)
		d.await(id, ready)
		for _, user := range []string{"", "0"} {
			e := must(d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, User: user, Command: []string{"sh", "-c", showPrivilege}}))(t)
			if st := d.ended(e.GetExecId()); st.GetExitCode() != 0 {
				t.Fatalf("%s: %s", row.profile, st.GetError())
			}
			got := strings.TrimSpace(d.read(e.GetStdoutLogPath()))
			if row.profile == "standard" {
				_, amb, _ := strings.Cut(got, "CapAmb:")
				got = strings.TrimPrefix(amb, asked+" ")
			}
			if got != row.want {
				t.Errorf("%s, user %q: %s\nwant %s", row.profile, user, got, row.want)
			}
		}
		if got := d.sh(id, "cat /tmp/main; grep ^Seccomp: /proc/self/status"); row.profile == "hardened" && !strings.HasPrefix(got, row.want) || !strings.HasSuffix(got, "Seccomp:\t0\n") {
			t.Errorf("%s: the main process, and the filter of an exec: %s", row.profile, got)
		}
		e := d.exec(id, "sh", "-c", "trap '' TERM; sleep 1000000 & wait")
		must(d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: e.GetExecId()}))(t)
		if st := d.ended(e.GetExecId()); st.GetState() != agboxv1.ExecState_EXEC_STATE_CANCELLED {
			t.Errorf("%s: a cancelled exec is %s: %s", row.profile, st.GetState(), st.GetError())
		}
	}
	d.conf = ""
	d.restart()
	d.stopBox(ids[0])
	d.await(ids[0], stopped)
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: ids[0]}))(t)
	d.await(ids[0], ready)
	if got := strings.TrimSpace(d.sh(ids[0], showPrivilege)); got != all+" NoNewPrivs:1" {
		t.Errorf("no longer allowed, a sandbox has %s", got)
	}
	if got := d.agbox("describe", ids[0]); !strings.Contains(got, "hardened; with NET_RAW, SYS_PTRACE; seccomp unconfined") || !strings.Contains(got, "SYS_PTRACE is not allowed here") {
		t.Errorf("describe says\n%s", got)
	}
	_, err := d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: loose("hardened", nil)})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "security.allow") {
		t.Errorf("a new one: %v", err)
	}
}

// The two lists are what a program can do beyond the files that are its user's.
func TestWhatAHostileProgramCanDo(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	image := setuidImage(t)
	for _, row := range []struct{ profile, user, want string }{
		{"standard", "", "setuid program"},
		{"standard", "0", "chroot, become somebody, other groups, give a file away, trace PID 1, memory of PID 1, environment of PID 1, " +
			"files of PID 1, descriptors of PID 1, trace the supervisor, memory of the supervisor"},
		{"hardened", "", ""},
		{"hardened", "0", ""},
	} {
		id := d.create(withProfile(row.profile, &agboxv1.CreateSpec{
			Image: image, User: row.user, Envs: map[string]string{"WHO": map[string]string{"0": "root"}[row.user]},
		}))
		d.await(id, ready)
		e := d.exec(id, "/hostile")
		if st := d.ended(e.GetExecId()); st.GetExitCode() != 0 {
			t.Errorf("%s: %s", row.profile, st.GetError())
		}
		got := strings.ReplaceAll(strings.TrimSpace(d.read(e.GetStdoutLogPath())), "\n", ", ")
		if got != row.want {
			t.Errorf("%s, user %q can: %s\nwant: %s", row.profile, row.user, got, row.want)
		}
		if d.ended(d.exec(id, "sh", "-c", "kill -9 1; true").GetExecId()); d.state(id) != ready {
			t.Errorf("%s, user %q ended PID 1", row.profile, row.user)
		}
		d.remove(id)
	}
}

// A sandbox keeps the profile and the memory of its accept, whatever the configuration says later.
func TestAChangedDefaultChangesNoSandbox(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[security]\nprofile = \"hardened\"\n[runtime]\nmemory_limit = \"64MiB\"\n")
	spec := func() *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Image: baseImage, OptionalServices: []*agboxv1.ServiceSpec{web("db", 0)}}
	}
	id := d.create(spec())
	d.await(id, ready)
	if got := strings.TrimSpace(d.sh(id, showPrivilege)); got != noPrivilege {
		t.Errorf("an exec has %s", got)
	}
	before := d.inspect(naming.Primary(id))
	const bounded = "-1/100000 67108864 4096"
	d.eventually("the service", func() error {
		if d.inspectIfThere(naming.Service(id, "db")).State.Pid == 0 {
			return fmt.Errorf("does not run yet")
		}
		return nil
	})
	d.wantLimits(id, bounded, bounded)

	d.conf = ""
	d.restart()
	if changed := d.update(id, spec()); len(changed) > 0 {
		t.Errorf("the same spec differs in %q", changed)
	}
	_, err := d.UpdateSandbox(d.ctx(), &agboxv1.UpdateSandboxRequest{SandboxId: id, CreateSpec: withProfile("standard", spec())})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "security.profile") {
		t.Errorf("a change of the profile: %v", err)
	}
	more := spec()
	more.PidsLimit = 200
	d.update(id, more)
	d.wantLimits(id, "-1/100000 67108864 200", bounded)
	must(d.StopSandbox(d.ctx(), &agboxv1.StopSandboxRequest{SandboxId: id}))(t)
	d.await(id, stopped)
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
	d.await(id, ready)
	if got := strings.TrimSpace(d.sh(id, showPrivilege)); got != noPrivilege {
		t.Errorf("after a resume an exec has %s", got)
	}
	if after := d.inspect(naming.Primary(id)); after.ID != before.ID {
		t.Error("the container is another one")
	}
	if p := d.sandbox(id).GetSecurityProfile(); p != "hardened" {
		t.Errorf("the profile is said to be %q", p)
	}
	const inForce = "memory 64MiB (default), pids 200"
	if got := d.agbox("describe", id); !strings.Contains(got, inForce) {
		t.Errorf("describe does not say %q:\n%s", inForce, got)
	}
	if sb := d.sandbox(d.create(spec())); sb.GetSecurityProfile() != "standard" || sb.GetDefaultMemoryBytes() != 0 {
		t.Errorf("a new one has %q and %d bytes", sb.GetSecurityProfile(), sb.GetDefaultMemoryBytes())
	}
}
