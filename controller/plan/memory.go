package plan

import (
	"fmt"

	"github.com/docker/go-units"
)

// OutOfMemory says that the kernel killed something for memory. limitBytes 0: without a limit of its own.
func OutOfMemory(limitBytes int64) string {
	if limitBytes <= 0 {
		return "killed: out of memory"
	}
	return fmt.Sprintf("killed: out of memory (limit %s)", units.BytesSize(float64(limitBytes)))
}

// death describes the end of a container. The engine's OOM flag is sticky: it tells of any process in this run. It counts for
// an exit by KILL, unless an exec explains the flag and somebody is known to have killed the container.
func death(c Container, execOOM bool, what string) (code, text string) {
	explained := execOOM && c.KilledOutside
	if c.OOMKilled && c.ExitCode == 137 && !explained {
		return CodeContainerOOM, what + " was " + OutOfMemory(c.Limits.MemoryBytes)
	}
	return CodeContainerDied, fmt.Sprintf("%s exited with code %d", what, c.ExitCode)
}
