package plan

import storev1 "github.com/agbox/agbox/apis/agbox/store/v1"

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
