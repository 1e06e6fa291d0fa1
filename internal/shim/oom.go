package shim

import (
	"os"
	"strconv"
	"strings"
)

// oomKills reads how many processes of this container the kernel killed for memory; 0 where it does not say.
func oomKills() int64 {
	n, _ := memoryFile("memory.oom_control", "memory.events", oomCount)
	return n
}

// memoryLimit reads how many bytes this container may use; 0 where there is no limit, or the kernel does not say.
func memoryLimit() int64 {
	n, _ := memoryFile("memory.limit_in_bytes", "memory.max", limitBytes)
	return n
}

// memoryFree returns the bytes between the container's limit and its present use. The use includes page cache, which the kernel could
// reclaim. Without a limit it is more than any machine has.
func memoryFree() int64 {
	limit := memoryLimit()
	used, ok := memoryFile("memory.usage_in_bytes", "memory.current", limitBytes)
	if limit == 0 || !ok {
		return unlimited
	}
	return limit - used
}

// supervisorMemory is what a supervisor holds that belongs to it alone, in bytes: 1 MiB was measured.
const supervisorMemory = 3 << 19

// memoryUnused returns the bytes that the kernel can give without killing a process: what is free, and page cache. Without a limit it is
// more than any machine has.
func memoryUnused() int64 {
	free := memoryFree()
	if free == unlimited {
		return free
	}
	_, cache := memoryHeld()
	return free + cache
}

// memoryAvailable returns the bytes that the kernel can give to a start without killing PID 1 or one of its supervisors: what is unused, and
// what commands and the reserve hold, which it kills first. Without a limit it is more than any machine has.
func memoryAvailable(supervisors int) int64 {
	free := memoryFree()
	if free == unlimited {
		return free
	}
	anonymous, cache := memoryHeld()
	return free + cache + max(0, anonymous-ownMemory()-int64(supervisors)*supervisorMemory)
}

// memoryHeld returns the bytes of anonymous memory and of page cache in this container; 0 where the kernel does not say.
func memoryHeld() (anonymous, cache int64) {
	anonymous, _ = memoryFile("memory.stat", "memory.stat", func(text string) (anonymous int64, ok bool) {
		anonymous, cache, ok = memoryUse(text)
		return anonymous, ok
	})
	return anonymous, cache
}

// memoryUse reads the bytes of anonymous memory and of page cache from memory.stat of cgroup v1 or v2. v1 counts the groups below the
// container's own in lines that begin with total_.
func memoryUse(text string) (anonymous, cache int64, ok bool) {
	use := make(map[string]int64)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			use[name] = n
		}
	}
	if anonymous, ok = use["total_rss"]; ok {
		return anonymous, use["total_inactive_file"] + use["total_active_file"], true
	}
	anonymous, ok = use["anon"]
	return anonymous, use["inactive_file"] + use["active_file"], ok
}

// ownMemory returns the bytes of anonymous memory of this process; 0 where the kernel does not say.
func ownMemory() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 3 {
		return 0
	}
	resident, err := strconv.ParseInt(fields[1], 10, 64)
	shared, err2 := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || err2 != nil {
		return 0
	}
	return (resident - shared) * int64(os.Getpagesize())
}

// memoryFile reads a file of the container's memory controller, by its name in cgroup v1 or v2. v1 shows the container's own
// directory; v2 does so in a private cgroup namespace, else below the path of /proc/self/cgroup.
func memoryFile(v1, v2 string, parse func(string) (int64, bool)) (int64, bool) {
	files := []string{"/sys/fs/cgroup/memory/" + v1, "/sys/fs/cgroup/" + v2}
	if own, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(own)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				files = append(files, "/sys/fs/cgroup"+path+"/"+v2)
			}
		}
	}
	for _, file := range files {
		data, err := readRegular(file, 4096)
		if err != nil {
			continue
		}
		if n, ok := parse(string(data)); ok {
			return n, true
		}
	}
	return 0, false
}

func oomCount(text string) (int64, bool) {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			n, err := strconv.ParseInt(v, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// unlimited is more than any machine has. v1 writes the largest number of whole pages for no limit.
const unlimited = 1 << 62

func limitBytes(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n >= unlimited {
		return 0, strings.TrimSpace(text) == "max" || err == nil
	}
	return n, true
}
