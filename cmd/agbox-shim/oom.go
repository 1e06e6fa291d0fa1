package main

import (
	"os"
	"strconv"
	"strings"
)

// oomKills reads how many processes of this container the kernel killed for memory; 0 where it does not say. cgroup v1
// shows the container's own directory; v2 does so in a private cgroup namespace, else below the path of /proc/self/cgroup.
func oomKills() int64 {
	files := []string{"/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events"}
	if own, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(own)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				files = append(files, "/sys/fs/cgroup"+path+"/memory.events")
			}
		}
	}
	for _, file := range files {
		data, err := readRegular(file, 4096)
		if err != nil {
			continue
		}
		if n, ok := oomCount(string(data)); ok {
			return n
		}
	}
	return 0
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
