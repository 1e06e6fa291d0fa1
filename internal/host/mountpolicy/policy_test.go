package mountpolicy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/host/mountpolicy"
)

var base = mountpolicy.Policy{
	Own:    []string{"/home/u/.local/share/agents-sandbox", "/run/user/1000/agbox", "/srv/logs", "/home/u/.local/share/agents-sandbox/exec-logs"},
	Engine: []string{"/home/u/docker.sock"},
	// One directory with two paths, by a bind mount.
	EngineData: []string{"/mnt/data/docker", "/opt/engine/docker"},
}

func TestRefuses(t *testing.T) {
	writable := mountpolicy.Use{Writable: true}
	readOnly := mountpolicy.Use{}
	agent := mountpolicy.Use{Tool: true, Socket: true}
	for _, row := range []struct {
		source string
		use    mountpolicy.Use
		want   string // a part of the reason; "": accepted
	}{
		{"/home/u/project", writable, ""},
		{"/home/u/.ssh", writable, ""},
		{"/root", writable, ""},
		{"/home/u/.local/share/agents-sandbox", readOnly, "agboxd's own"},
		{"/home/u/.local/share/agents-sandbox/ids.db", readOnly, "agboxd's own"},
		{"/home/u/.local/share/agents-sandbox-2", writable, ""},
		{"/srv/logs/x", readOnly, "agboxd's own"},
		{"/run/user/1000/agbox/agboxd.sock", agent, "agboxd's own"},
		{"/run/user/1000/bus", writable, ""},
		{"/run/user/1000", writable, "/run"},
		{"/run/user/1000/docker.sock", writable, "engine's"},
		{"/run/user/1000/podman/podman.sock", readOnly, "engine's"},
		{"/run/user", readOnly, "/run"},
		{"/run/user/x/y", readOnly, "/run"},
		{"/run/ssh/agent.sock", agent, ""},
		{"/run/ssh/agent.sock", writable, "/run"},
		{"/home/u/docker.sock", agent, "engine's"},
		{"/home/u", writable, "/home/u/docker.sock"},
		{"/mnt/data/docker", readOnly, "lies in /mnt/data/docker"},
		{"/mnt/data/docker/volumes/x/_data", writable, "lies in /mnt/data/docker"},
		{"/mnt/data", writable, "contains /mnt/data/docker"},
		{"/mnt/data", readOnly, "contains /mnt/data/docker"},
		{"/mnt", writable, "contains /mnt/data/docker"},
		{"/mnt/data/docker-2", writable, ""},
		{"/mnt/data/project", writable, ""},
		{"/opt/engine", writable, "contains /opt/engine/docker"},
		{"/opt/engine/docker/overlay2", readOnly, "lies in /opt/engine/docker"},
		{"/mnt/data/docker/agent.sock", agent, "lies in /mnt/data/docker"},
		{"/", readOnly, "whole host"},
		{"/proc", readOnly, "/proc"},
		{"/proc/self/root", readOnly, "/proc"},
		{"/sys/fs/cgroup", readOnly, "/sys"},
		{"/dev/sda", writable, "/dev"},
		{"/dev", readOnly, "/dev"},
		{"/boot", readOnly, "/boot"},
		{"/run/docker.sock", writable, "/run"},
		{"/run/containerd/containerd.sock", readOnly, "/run"},
		{"/var/run", readOnly, "/var/run"},
		{"/var/lib/docker", readOnly, "/var/lib/docker"},
		{"/var/lib/docker/volumes/x/_data", readOnly, "/var/lib/docker"},
		{"/var/lib", readOnly, "contains /var/lib/docker"},
		{"/var/lib/postgresql", readOnly, ""},
		{"/var/lib/postgresql", writable, "only read-only"},
		{"/var", readOnly, "/var/run"},
		{"/var/log", writable, ""},
		{"/var/tmp", writable, ""},
		{"/etc", readOnly, ""},
		{"/etc/ssl/certs", readOnly, ""},
		{"/etc", writable, "only read-only"},
		{"/etc/passwd", writable, "only read-only"},
		{"/usr/lib", readOnly, ""},
		{"/usr/local/bin", writable, "only read-only"},
		{"/lib64", writable, "only read-only"},
		{"/opt/data", writable, ""},
		{"/tmp/x", writable, ""},
	} {
		got := base.Refuses(row.source, row.use)
		if (got == "") != (row.want == "") || !strings.Contains(got, row.want) {
			t.Errorf("%s, %+v: %q, want %q", row.source, row.use, got, row.want)
		}
		open := base
		open.AllowSystem = true
		if got := open.Refuses(row.source, row.use); (got != "") != (row.want == "agboxd's own") {
			t.Errorf("with allow_system, %s: %q", row.source, got)
		}
	}
}

func TestSourcesOutsideOfTheAllowedRootsAreRefused(t *testing.T) {
	p := base
	p.Allow, p.AllowSystem = []string{"/srv", "/home/u/work"}, true
	for source, accepted := range map[string]bool{
		"/srv": true, "/srv/a": true, "/home/u/work/x": true, "/home/u": false, "/srv2": false, "/": false, "/srv/logs": false, "/etc": false,
	} {
		if why := p.Refuses(source, mountpolicy.Use{}); (why == "") != accepted {
			t.Errorf("%s: %q", source, why)
		}
	}
	p.Allow = []string{"/"}
	if why := p.Refuses("/etc", mountpolicy.Use{}); why != "" {
		t.Errorf("below /: %q", why)
	}
}

func TestCovers(t *testing.T) {
	for source, want := range map[string][]string{
		"/home/u":                {".local/share/agents-sandbox"},
		"/home/u/.local":         {"share/agents-sandbox"},
		"/home/u/.local/share/x": nil,
		"/":                      {"home/u/.local/share/agents-sandbox", "run/user/1000/agbox", "srv/logs"},
		"/run/user/1000":         {"agbox"},
		"/srv":                   {"logs"},
	} {
		if got := base.Covers(source); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

func TestBetween(t *testing.T) {
	for rel, want := range map[string][]string{"agbox": nil, ".local/share/agents-sandbox": {".local", ".local/share"}} {
		if got := mountpolicy.Between(rel); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", rel, got, want)
		}
	}
}

const mountinfo = `22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 8:2 / /home rw - ext4 /dev/sda2 rw
31 22 8:2 /u /mnt/u\040copy rw - ext4 /dev/sda2 rw
32 22 8:2 /u/.local/share/agents-sandbox/s /mnt/inner rw - ext4 /dev/sda2 rw
33 22 8:2 /v /mnt/v rw - ext4 /dev/sda2 rw
34 22 8:1 /home /mnt/hidden rw - ext4 /dev/sda1 rw
`

func TestAliases(t *testing.T) {
	got := mountpolicy.Aliases([]string{"/home/u/.local/share/agents-sandbox"}, mountinfo)
	want := []string{"/home/u/.local/share/agents-sandbox", "/mnt/inner", "/mnt/u copy/.local/share/agents-sandbox"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := mountpolicy.Aliases([]string{"/srv/x"}, ""); !slices.Equal(got, []string{"/srv/x"}) {
		t.Errorf("without mounts %q", got)
	}
}
