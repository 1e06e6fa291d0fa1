package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/docker/go-units"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// fate is what happened to the engine and the host since the sandbox was last known to run. The two deaths are reasons of
// SANDBOX_RESTARTED.
type fate string

const (
	sameLife    fate = "same"
	engineDeath fate = "engine_death"
	hostDeath   fate = "host_death"
	// unclearLife: the engine does not report its life, so it may have died.
	unclearLife fate = "unclear"
)

// IsDeath reports whether a reason is the death of the engine or the host.
func IsDeath(reason string) bool { return reason == string(engineDeath) || reason == string(hostDeath) }

func compare(last, present *storev1.EngineRun) fate {
	switch {
	case last.GetBootId() == "" || present.GetBootId() == "":
		return unclearLife
	case last.GetBootId() != present.GetBootId():
		return hostDeath
	case last.GetEngineStart() == "" || present.GetEngineStart() == "":
		return unclearLife
	case last.GetEngineStart() != present.GetEngineStart():
		return engineDeath
	}
	return sameLife
}

// OutOfMemory returns the message for a kill by the kernel's OOM killer. limitBytes 0: no limit.
func OutOfMemory(limitBytes int64) string {
	if limitBytes <= 0 {
		return "killed: out of memory"
	}
	return fmt.Sprintf("killed: out of memory (limit %s)", units.BytesSize(float64(limitBytes)))
}

// Meanwhile returns the end of a message about a command that ended otherwise while the kernel killed processes of its sandbox for memory.
// They may be children of the command, or of another exec.
func Meanwhile(kills, limitBytes int64) string {
	switch kills {
	case 0:
		return ""
	case 1:
		return "; meanwhile a process of the sandbox was " + OutOfMemory(limitBytes)
	}
	return fmt.Sprintf("; meanwhile %d processes of the sandbox were %s", kills, OutOfMemory(limitBytes))
}

// oomLag bounds how much later than the end of a container the engine may report that the kernel killed it for memory: the two facts reach
// the engine on different paths.
const oomLag = time.Second

// mayBeOOM reports a container that ended within oomLag and that the kernel may have killed for memory although the engine has not said so.
func (c Container) mayBeOOM(now time.Time) bool {
	ago := now.Sub(c.FinishedAt)
	return c.Ended() && c.ExitCode == 137 && !c.OOMKilled && !c.KilledOutside && c.Limits.MemoryBytes > 0 && ago >= 0 && ago < oomLag
}

// death describes the end of a container in one sentence, with the end of its output. The engine's OOM flag is sticky: any process of this run may have set it. The flag counts for an
// exit by KILL, unless an exec explains the flag and an event says that the container was killed from outside.
func death(c Container, execOOM bool, what string) (code, text string) {
	explained := execOOM && c.KilledOutside
	if c.OOMKilled && c.ExitCode == 137 && !explained {
		return CodeContainerOOM, what + " was " + OutOfMemory(c.Limits.MemoryBytes) + c.lastOutput()
	}
	return CodeContainerDied, fmt.Sprintf("%s exited with code %d", what, c.ExitCode) + c.lastOutput()
}

// lastOutput returns the end of a message about a container that failed: the end of its output, if there is any.
func (c Container) lastOutput() string {
	if out := strings.TrimSpace(c.Output); out != "" {
		return "; its output ends: " + out
	}
	return ""
}
