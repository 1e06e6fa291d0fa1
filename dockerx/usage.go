package dockerx

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// Usage is what the processes of one running container use, as the kernel counts it in the container's cgroups. A number that the
// kernel does not count is 0.
type Usage struct {
	// CPU is the time on all cores since the container started.
	CPU time.Duration
	// MemoryBytes excludes file cache that the kernel can drop at once.
	MemoryBytes uint64
	// MemoryLimitBytes is 0 without a limit.
	MemoryLimitBytes uint64
	// Pids counts processes and threads. PidsLimit is 0 without a limit.
	Pids, PidsLimit uint64
	// ReadBytes and WrittenBytes count what reached block devices since the container started.
	ReadBytes, WrittenBytes uint64
}

// cgroups are the directories of one container's cgroup, by controller of v1; for v2 there is one, under "".
type cgroups map[string]string

// usageReader reads Usage on this host, bypassing the engine. Safe for concurrent use.
type usageReader struct {
	proc   string // a mounted procfs
	cgroup string // where the cgroup hierarchies are mounted

	mu sync.Mutex
	// found has the cgroups of all containers that ran on this host at the last scan, by full ID. A container keeps its cgroups when it
	// starts again. Derived.
	found map[string]cgroups
}

// Usage returns what these containers, by full ID, use. It leaves out containers that do not run, and all of them where their cgroups
// are not visible: the engine is on another host, or in another namespace. It makes no engine call. If it does not know the cgroups of
// one, it reads /proc/<pid>/cgroup of all processes once.
func (e *Engine) Usage(ids []string) map[string]Usage { return e.usage.read(ids) }

func (r *usageReader) read(ids []string) map[string]Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]Usage{}
	read := func(id string) {
		if u, ok := r.found[id].read(); ok {
			out[id] = u
		}
	}
	for _, id := range ids {
		read(id)
	}
	if len(out) == len(ids) {
		return out
	}
	r.found = r.scan()
	for _, id := range ids {
		if _, done := out[id]; !done {
			read(id)
		}
	}
	return out
}

// scan returns the cgroups of all containers with a process on this host.
func (r *usageReader) scan() map[string]cgroups {
	found := map[string]cgroups{}
	fs, err := procfs.NewFS(r.proc)
	if err != nil {
		return found
	}
	all, err := fs.AllProcs()
	if err != nil {
		return found
	}
	for _, p := range all {
		groups, err := p.Cgroups()
		if err != nil {
			continue // it has ended, or is hidden from this user
		}
		for _, g := range groups {
			r.add(found, g)
		}
	}
	return found
}

// fullID matches the ID in the path of a container's cgroup: /docker/<id>, or /system.slice/docker-<id>.scope.
var fullID = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// add adds one hierarchy of one process.
func (r *usageReader) add(found map[string]cgroups, g procfs.Cgroup) {
	for _, id := range fullID.FindAllString(g.Path, -1) {
		dir, ok := containerCgroup(g.Path, id)
		if !ok {
			continue
		}
		if found[id] == nil {
			found[id] = cgroups{}
		}
		if len(g.Controllers) == 0 {
			found[id][""] = filepath.Join(r.cgroup, dir)
		}
		for _, controller := range g.Controllers {
			found[id][controller] = filepath.Join(r.cgroup, controller, dir)
		}
	}
}

// read reports !ok if the container does not run.
func (c cgroups) read() (Usage, bool) {
	if _, v1 := c["cpuacct"]; v1 {
		return c.readV1()
	}
	return c.readV2()
}

func (c cgroups) readV1() (u Usage, ok bool) {
	nanos, ok := number(c["cpuacct"], "cpuacct.usage")
	u.CPU = time.Duration(min(nanos, math.MaxInt64))
	used, _ := number(c["memory"], "memory.usage_in_bytes")
	cache, _ := value(c["memory"], "memory.stat", "total_inactive_file")
	u.MemoryBytes = used - min(used, cache)
	if limit, _ := number(c["memory"], "memory.limit_in_bytes"); limit < math.MaxInt64/2 { // "none" is MaxInt64 rounded to a page
		u.MemoryLimitBytes = limit
	}
	u.Pids, _ = number(c["pids"], "pids.current")
	u.PidsLimit, _ = number(c["pids"], "pids.max")
	for _, line := range lines(c["blkio"], "blkio.throttle.io_service_bytes") { // "8:0 Read 4096"; the last line is "Total 8192"
		if len(line) == 3 {
			n, _ := strconv.ParseUint(line[2], 10, 64)
			switch line[1] {
			case "Read":
				u.ReadBytes += n
			case "Write":
				u.WrittenBytes += n
			}
		}
	}
	return u, ok
}

func (c cgroups) readV2() (u Usage, ok bool) {
	dir := c[""]
	micros, ok := value(dir, "cpu.stat", "usage_usec")
	u.CPU = time.Duration(min(micros, math.MaxInt64/1000)) * time.Microsecond
	used, _ := number(dir, "memory.current")
	cache, _ := value(dir, "memory.stat", "inactive_file")
	u.MemoryBytes = used - min(used, cache)
	u.MemoryLimitBytes, _ = number(dir, "memory.max") // "max" is no number
	u.Pids, _ = number(dir, "pids.current")
	u.PidsLimit, _ = number(dir, "pids.max")
	for _, line := range lines(dir, "io.stat") { // "8:0 rbytes=4096 wbytes=0 rios=1 ..."
		for _, pair := range line[1:] {
			key, text, _ := strings.Cut(pair, "=")
			n, _ := strconv.ParseUint(text, 10, 64)
			switch key {
			case "rbytes":
				u.ReadBytes += n
			case "wbytes":
				u.WrittenBytes += n
			}
		}
	}
	return u, ok
}

// lines returns the words of each line that is not empty; none if there is no such file.
func lines(dir, file string) (out [][]string) {
	if dir == "" {
		return nil
	}
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(raw)) {
		if words := strings.Fields(line); len(words) > 0 {
			out = append(out, words)
		}
	}
	return out
}

// number reads a file with one number; !ok: there is none.
func number(dir, file string) (n uint64, ok bool) {
	all := lines(dir, file)
	if len(all) == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(all[0][0], 10, 64)
	return n, err == nil
}

// value reads the number of one key of a file with lines "key number"; !ok: there is none.
func value(dir, file, key string) (n uint64, ok bool) {
	for _, line := range lines(dir, file) {
		if len(line) == 2 && line[0] == key {
			n, err := strconv.ParseUint(line[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
