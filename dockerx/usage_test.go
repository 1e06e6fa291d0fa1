package dockerx

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestUsageOfOneContainer(t *testing.T) {
	const v1 = "9:name=systemd:/docker/ID\n8:pids:/docker/ID\n7:blkio:/docker/ID\n4:memory:/docker/ID\n2:cpu,cpuacct:/docker/ID\n0::/docker/ID\n"
	v1Files := map[string]string{
		"cpuacct/docker/ID/cpuacct.usage":                 "1500000000\n",
		"memory/docker/ID/memory.usage_in_bytes":          "5000\n",
		"memory/docker/ID/memory.limit_in_bytes":          "67108864\n",
		"memory/docker/ID/memory.stat":                    "cache 10\ntotal_inactive_file 1000\n",
		"pids/docker/ID/pids.current":                     "3\n",
		"pids/docker/ID/pids.max":                         "50\n",
		"blkio/docker/ID/blkio.throttle.io_service_bytes": "8:0 Read 4096\n8:0 Write 100\n8:0 Total 4196\n8:16 Read 4\n8:16 Write 1\nTotal 4301\n",
	}
	v2 := func(dir string) map[string]string {
		return map[string]string{
			dir + "cpu.stat":       "usage_usec 1500000\nuser_usec 1\n",
			dir + "memory.current": "5000\n",
			dir + "memory.max":     "67108864\n",
			dir + "memory.stat":    "anon 1\ninactive_file 1000\n",
			dir + "pids.current":   "3\n",
			dir + "pids.max":       "50\n",
			dir + "io.stat":        "8:0 rbytes=4096 wbytes=100 rios=1 wios=1\n8:16 rbytes=4 wbytes=1\n9:0\n",
		}
	}
	with := func(files map[string]string, name, content string) map[string]string {
		files = maps.Clone(files)
		files[name] = content
		return files
	}
	full := Usage{CPU: 1500 * time.Millisecond, MemoryBytes: 4000, MemoryLimitBytes: 64 << 20, Pids: 3, PidsLimit: 50, ReadBytes: 4100, WrittenBytes: 101}
	but := func(change func(*Usage)) Usage {
		u := full
		change(&u)
		return u
	}
	for name, tc := range map[string]struct {
		lines string
		files map[string]string
		want  Usage // zero: left out
	}{
		"v1": {v1, v1Files, full},
		"v1 without a memory limit": {v1, with(v1Files, "memory/docker/ID/memory.limit_in_bytes", "9223372036854771712\n"),
			but(func(u *Usage) { u.MemoryLimitBytes = 0 })},
		"v1 without a pids limit":          {v1, with(v1Files, "pids/docker/ID/pids.max", "max\n"), but(func(u *Usage) { u.PidsLimit = 0 })},
		"v2":                               {"0::/docker/ID\n", v2("docker/ID/"), full},
		"v2 with systemd, in a sub-cgroup": {"0::/system.slice/docker-ID.scope/init\n", v2("system.slice/docker-ID.scope/"), full},
		"v2 without limits": {"0::/docker/ID\n", with(with(v2("docker/ID/"), "docker/ID/memory.max", "max\n"), "docker/ID/pids.max", "max\n"),
			but(func(u *Usage) { u.MemoryLimitBytes, u.PidsLimit = 0, 0 })},
		"v2 with more cache than memory": {"0::/docker/ID\n", with(v2("docker/ID/"), "docker/ID/memory.stat", "inactive_file 9000\n"),
			but(func(u *Usage) { u.MemoryBytes = 0 })},
		"v2 with the CPU alone":    {"0::/docker/ID\n", map[string]string{"docker/ID/cpu.stat": "usage_usec 1500000\n"}, Usage{CPU: full.CPU}},
		"an engine in a container": {"0::/docker/" + strings.Repeat("f", 64) + "/docker/ID\n", v2("docker/" + strings.Repeat("f", 64) + "/docker/ID/"), full},
		"another container":        {"0::/docker/another\n", v2("docker/another/"), Usage{}},
		"a path with ..":           {"0::/../docker/ID\n", v2("docker/ID/"), Usage{}},
		"ended since":              {"0::/docker/ID\n", nil, Usage{}},
		"nonsense":                 {"x\n", v2("docker/ID/"), Usage{}},
	} {
		t.Run(name, func(t *testing.T) {
			h := madeUpHost(t, tc.lines, tc.files)
			r := usageReader{proc: h.proc, cgroup: h.cgroup}
			got := r.read([]string{frozenID})
			if u, ok := got[frozenID]; u != tc.want || ok != (tc.want != Usage{}) || len(got) > 1 {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestUsageScansForUnknownContainersOnly(t *testing.T) {
	h := madeUpHost(t, "0::/docker/ID\n", map[string]string{"docker/ID/cpu.stat": "usage_usec 1\n"})
	r := usageReader{proc: h.proc, cgroup: h.cgroup}
	if got := r.read([]string{frozenID}); len(got) != 1 {
		t.Fatalf("first read: %v", got)
	}
	if err := os.Rename(h.proc, h.proc+"-hidden"); err != nil { // a scan finds nothing from now on
		t.Fatal(err)
	}
	if got := r.read([]string{frozenID}); len(got) != 1 {
		t.Errorf("a known container: %v", got)
	}
	if got := r.read([]string{frozenID, strings.Repeat("0", 64)}); len(got) != 1 {
		t.Errorf("a known and an unknown container: %v", got)
	}
	if len(r.found) != 0 {
		t.Errorf("after the scan, which found none: %v", r.found)
	}
	if err := os.Rename(h.proc+"-hidden", h.proc); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(h.cgroup, "docker")); err != nil {
		t.Fatal(err)
	}
	if got := r.read([]string{frozenID}); len(got) != 0 {
		t.Errorf("an ended container: %v", got)
	}
}
