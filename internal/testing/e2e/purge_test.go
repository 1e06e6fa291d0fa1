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
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/host/naming"
)

// A purge of a killed daemon removes what runs, and nothing of the daemon beside it.
func TestPurgeLeavesNothingButVolumes(t *testing.T) {
	t.Parallel()
	neighbour := newDaemon(t, "", "")
	theirs := neighbour.named("web", &agboxv1.CreateSpec{Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/data"}}})
	neighbour.await(theirs, ready)
	d := newDaemon(t, "", "")
	d.unaudited = "its records are purged"
	spec := &agboxv1.CreateSpec{
		RequiredServices: []*agboxv1.ServiceSpec{web("db", 0)}, Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/data"}},
	}
	id := d.named("web", spec)
	d.await(id, ready)
	instance := strings.TrimSpace(string(must(os.ReadFile(filepath.Join(d.home, "data/agents-sandbox/instance")))(t)))
	d.builds("me", baseImage, "echo one; sleep 0.1")
	d.starts("me", baseImage, "echo one; sleep 0.1", "echo two", "sleep 600")
	steps := func() string {
		return d.docker("ps", "-aq", "--filter", "label="+naming.BuildLayer+"="+instance) + d.docker("images", "-aq", "--filter", "label="+naming.BuildLayer+"="+instance)
	}
	d.eventually("a step runs", func() error {
		if strings.Count(steps(), "\n") < 5 {
			return fmt.Errorf("there is %s", steps())
		}
		return nil
	})
	d.agbox("exec", "web", "-d", "--", "sh", "-c", "while :; do echo more; sleep 0.01; done")
	purge := func(args ...string) (string, error) {
		out, err := d.command(append([]string{"purge"}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := purge("--yes"); err == nil || !strings.Contains(out, "another agboxd is running") {
		t.Errorf("beside the daemon: %v\n%s", err, out)
	}
	bridge := d.bridge(id)
	d.kill()
	objects := func(kind ...string) []string {
		return strings.Fields(d.docker(append(kind, "-q", "--filter", "label="+naming.Instance+"="+instance)...))
	}
	out, err := purge("--dry-run")
	if err != nil || !strings.Contains(out, "would remove container "+naming.Primary(id)) || !strings.Contains(out, "stays: volume agbox-vol-") {
		t.Errorf("dry run: %v\n%s", err, out)
	}
	if n := len(objects("ps", "-a")); n != 2 {
		t.Errorf("after a dry run there are %d containers", n)
	}
	if out, err := purge("--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if left := steps(); left != "" {
		t.Errorf("left of builds: %s", left)
	}
	for _, image := range strings.Fields(d.docker("images", "-q", "--filter", "label="+naming.BuildInstance+"="+instance)) {
		d.docker("rmi", image)
	}
	volume := naming.VolumeOf(instance, "web", "data")
	if c, n, v := objects("ps", "-a"), objects("network", "ls"), objects("volume", "ls"); len(c)+len(n) > 0 || len(v) != 1 || v[0] != volume {
		t.Errorf("left: containers %v, networks %v, volumes %v", c, n, v)
	}
	rules := firewall.New(0)
	defer rules.Close()
	if left := must(rules.Bridges())(t); slices.Contains(left, bridge) {
		t.Errorf("rules of %s are left", bridge)
	}
	d.docker("volume", "rm", volume)
	for _, dir := range []string{"data/agents-sandbox", "run/agbox"} {
		if _, err := os.Stat(filepath.Join(d.home, dir)); err == nil {
			t.Errorf("%s is there", dir)
		}
	}
	if out, err := purge(); err != nil || !strings.Contains(out, "nothing to purge") {
		t.Errorf("again: %v\n%s", err, out)
	}
	if got := neighbour.sh(theirs, "echo hi > /data/f; cat /data/f"); got != "hi\n" {
		t.Errorf("the neighbour has %q", got)
	}
}
