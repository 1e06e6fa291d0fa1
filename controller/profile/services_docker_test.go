//go:build docker

package profile_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/controller/profile"
)

const baseImage = "agbox-base:dev"

type serviceUse struct {
	capability, what, script string
	broken                   string // part of what the script prints without the capability
}

// serviceUses has, for each capability that services of a hardened sandbox keep, what a server's image can't do without it. Each script
// runs as root, as an image's entrypoint does. docs/decisions/0017-mounts-and-profiles.md has the same table.
var serviceUses = []serviceUse{
	{"CHOWN", "data is given to the server's user", "touch /data && chown agbox /data", "Operation not permitted"},
	{"FOWNER", "permissions of the server's data are set", "mkdir /data && chown agbox /data && chmod 700 /data", "Operation not permitted"},
	{"DAC_OVERRIDE", "data that only the server may read is prepared", "mkdir -m 700 /data && chown agbox /data && touch /data/pid", "Permission denied"},
	{"SETGID", "the server gets its groups", "su agbox -c true", "Operation not permitted"},
	{"SETUID", "the server gets its user", "su agbox -c true", "Operation not permitted"},
	{"NET_BIND_SERVICE", "a server whose file has this capability is started", "/true", "Operation not permitted"},
}

// Services of a hardened sandbox have no capability that images of servers could do without.
func TestServicesOfAHardenedSandboxNeedEachCapability(t *testing.T) {
	t.Parallel()
	server := serverWithCapability(t, unix.CAP_NET_BIND_SERVICE)
	run := func(t *testing.T, script string, without ...string) (string, error) {
		name := create(t, []string{"sh", "-c", script}, without...)
		docker(t, "cp", server, name+":/true")
		out, err := exec.Command("docker", "start", "-a", name).CombinedOutput()
		return string(out), err
	}
	for _, row := range serviceUses {
		t.Run(row.capability+": "+row.what, func(t *testing.T) {
			if out, err := run(t, row.script); err != nil {
				t.Errorf("with all capabilities: %v: %s", err, out)
			}
			if out, err := run(t, row.script, row.capability); err == nil || !strings.Contains(strings.ToLower(out), strings.ToLower(row.broken)) {
				t.Errorf("without %s: %v: %q, want %q", row.capability, err, out, row.broken)
			}
		})
	}
	t.Run("KILL: a server of another user is asked to end", func(t *testing.T) {
		const ended, cut = "7", "1" // the server's own exit code; that of an init that could not hand the signal on
		for want, without := range map[string][]string{ended: nil, cut: {"KILL"}} {
			name := create(t, []string{"su", "agbox", "-c", `trap "exit ` + ended + `" TERM; echo up; while :; do sleep 0.1; done`}, without...)
			docker(t, "start", name)
			for n := 0; n < 500 && docker(t, "logs", name) != "up"; n++ {
				continue // each call takes tens of milliseconds
			}
			docker(t, "stop", "-t", "20", name)
			if got := docker(t, "inspect", "-f", "{{.State.ExitCode}}", name); got != want {
				t.Errorf("without %q: exit code %s, want %s", without, got, want)
			}
		}
	})
	for _, c := range profile.Service(profile.Hardened).CapAdd {
		if c != "KILL" && !slices.ContainsFunc(serviceUses, func(row serviceUse) bool { return row.capability == c }) {
			t.Errorf("no use of %s is shown", c)
		}
	}
}

// create makes a container as a service of a hardened sandbox is, without some capabilities.
func create(t *testing.T, command []string, without ...string) (name string) {
	t.Helper()
	name = fmt.Sprintf("agbox-profile-%d-%s", os.Getpid(), strings.ToLower(filepath.Base(filepath.Dir(t.TempDir()))+filepath.Base(t.TempDir())))
	s := profile.Service(profile.Hardened)
	args := []string{"create", "--name", name, "--init", "--user=0", "--security-opt=no-new-privileges", "--cap-drop=" + s.CapDrop[0]}
	for _, c := range s.CapAdd {
		if !slices.Contains(without, c) {
			args = append(args, "--cap-add="+c)
		}
	}
	docker(t, append(append(args, baseImage), command...)...)
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "-fv", name).Run() })
	return name
}

func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// serverWithCapability is a program whose file has one capability, as "setcap" gives it. The kernel refuses to start it where the
// bounding set lacks that capability.
func serverWithCapability(t *testing.T, capability int) string {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "busybox")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	const revision2, effective = 0x02000000, 1
	value := binary.LittleEndian.AppendUint32(nil, revision2|effective)
	value = binary.LittleEndian.AppendUint32(value, 1<<capability) // permitted
	value = append(value, make([]byte, 12)...)                     // inheritable, and both for capabilities from 32 up
	if err := unix.Setxattr(path, "security.capability", value, 0); err != nil {
		t.Skipf("a file can't be given a capability: %v", err)
	}
	return path
}
