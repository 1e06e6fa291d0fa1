package main

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
