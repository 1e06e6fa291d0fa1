//go:build docker

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
	"github.com/agbox/agbox/internal/attack"
	"github.com/agbox/agbox/internal/attack/judge"
)

const lanHost, lanRouter, cloud = "10.77.0.1", "10.77.0.2", "169.254.169.254"

// surrounded gives the network namespace of a private engine a network with a router, which has a metadata service. Nothing leads from it to
// the network of this machine.
func surrounded(t *testing.T, e *dockerd.Engine) {
	t.Helper()
	router := filepath.Base(e.Netns()) + "-r"
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", router).Run() })
	local(t, t.TempDir(), fmt.Sprintf(`
		ip netns add %[1]s
		ip -n %[1]s link set lo up
		ip -n %[2]s link add lan0 type veth peer name lan0 netns %[1]s
		ip -n %[2]s addr add %[3]s/24 dev lan0
		ip -n %[1]s addr add %[4]s/24 dev lan0
		ip -n %[1]s addr add %[5]s/32 dev lan0
		ip -n %[2]s link set lan0 up
		ip -n %[1]s link set lan0 up
		ip -n %[2]s route add default via %[4]s`, router, filepath.Base(e.Netns()), lanHost, lanRouter, cloud))
}

// attacked runs the self-test in a sandbox and returns the verdicts.
func (d *daemon) attacked(name string, flags ...string) map[string]*agboxv1.DoctorCheck {
	d.Helper()
	cmd := exec.CommandContext(d.ctx(), filepath.Join(binaries, "agbox"), append([]string{"doctor", "--attack", name, "-o", "json"}, flags...)...)
	cmd.Env = append(cmd.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run")
	out, err := cmd.Output()
	verdicts, holes := map[string]*agboxv1.DoctorCheck{}, false
	for line := range strings.Lines(string(out)) {
		c := &agboxv1.DoctorCheck{}
		if err := json.Unmarshal([]byte(line), c); err != nil {
			d.Fatalf("%q: %v", line, err)
		}
		verdicts[c.GetName()] = c
		holes = holes || c.GetStatus() == judge.Hole
	}
	if len(verdicts) != len(judge.Checks) || holes != (err != nil) {
		d.Fatalf("%d verdicts, holes %t, %v", len(verdicts), holes, err)
	}
	return verdicts
}

// unlimited are the verdicts on a sandbox without limits of memory and disk.
var unlimited = map[string]string{attack.MemoryLimit: judge.Allowed, attack.DiskLimit: judge.Allowed}

// wantVerdicts asserts that all verdicts but some are that nothing succeeded. A sandbox has no limits of memory and disk by default.
func wantVerdicts(t *testing.T, what string, got map[string]*agboxv1.DoctorCheck, but map[string]string) {
	t.Helper()
	for name, c := range got {
		want := cmp.Or(but[name], unlimited[name], judge.Held)
		if c.GetStatus() != want {
			t.Errorf("%s: %s is %s and not %s: %s", what, name, c.GetStatus(), want, c.GetText())
		}
	}
}

// The self-test holds in each profile and network mode as the documentation says, tells what is open, and finds holes that are made.
func TestTheSelfTestOfASandbox(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	surrounded(t, e)
	d := prepared(t, t.TempDir())
	d.host, d.netns, d.engine = e.Host(), e.Netns(), fmt.Sprintf("resolvers = [%q]\n", lanRouter)
	d.start()
	strict := &agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Mode: "internal"}, Security: &agboxv1.SecuritySpec{Profile: "hardened"}, MemoryLimit: "128MiB"}
	open := &agboxv1.CreateSpec{User: "root", Network: &agboxv1.NetworkSpec{Mode: "open"}}
	ids := map[string]string{}
	for name, spec := range map[string]*agboxv1.CreateSpec{"default": {}, "strict": strict, "open": open} {
		ids[name] = d.named(name, spec)
	}
	for _, id := range ids {
		d.await(id, ready)
	}
	wantVerdicts(t, "default", d.attacked("default"), map[string]string{attack.Setuid: judge.Allowed, attack.LAN: judge.Allowed})
	wantVerdicts(t, "strict", d.attacked("strict"), map[string]string{attack.MemoryLimit: judge.Held})
	got := d.attacked("open")
	wantVerdicts(t, "open", got, map[string]string{
		attack.Host: judge.Allowed, attack.Metadata: judge.Allowed, attack.LAN: judge.Allowed, attack.Setuid: judge.Allowed, attack.Capabilities: judge.Allowed,
	})
	for check, address := range map[string]string{attack.Host: lanHost + ":", attack.Metadata: cloud + ":", attack.LAN: lanRouter + ":"} {
		if !strings.Contains(got[check].GetText(), address) {
			t.Errorf("%s does not name %s: %s", check, address, got[check].GetText())
		}
	}

	docker := func(args ...string) []byte {
		t.Helper()
		out, err := exec.CommandContext(d.ctx(), "docker", append([]string{"-H", e.Host()}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	// docs/security.md has the same table.
	for _, tt := range []struct{ flags, succeed string }{
		{"", "host metadata lan capabilities setuid packets devices pids memory_limit"},
		{"--user 1000 --cap-drop ALL --security-opt no-new-privileges --pids-limit 512 --memory 512m --read-only", "host metadata lan"},
	} {
		args := append([]string{"run", "--rm", "-v", filepath.Join(binaries, "agbox-shim") + ":/shim:ro"}, strings.Fields(tt.flags)...)
		printed := docker(append(args, baseImage, "/shim", attack.Verb, attack.Host+"="+lanHost, attack.LAN+"="+lanRouter)...)
		var succeed []string
		for _, r := range must(attack.ParseResults(printed))(t) {
			if len(r.Done) > 0 {
				succeed = append(succeed, r.Check)
			}
		}
		want := strings.Fields(tt.succeed)
		slices.Sort(want)
		if slices.Sort(succeed); !slices.Equal(succeed, want) {
			t.Errorf("docker run %s: %v succeed, not %v", tt.flags, succeed, want)
		}
	}
	primary := "agbox-primary-" + ids["strict"]
	docker("network", "connect", "bridge", primary)
	docker("update", "--pids-limit", "-1", primary)
	wantVerdicts(t, "with holes", d.attacked("strict"), map[string]string{attack.Host: judge.Hole, attack.Pids: judge.Hole, attack.MemoryLimit: judge.Held})
}
