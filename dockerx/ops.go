package dockerx

import (
	"maps"
	"slices"
	"time"
)

// Names of the operations, as Options.Observe receives them, with their deadlines. The set is fixed, so it can be a metric label. An idle
// engine answers in milliseconds; the deadlines allow for one that starts 16 containers at once on a slow disk, and still bound the wait
// for a hung engine.
var (
	OpInfo             = operation("info", 10*time.Second)
	OpListContainers   = operation("list_containers", 30*time.Second)
	OpInspectContainer = operation("inspect_container", 15*time.Second)
	OpMeasureContainer = operation("measure_container", time.Minute) // the engine walks the writable layer: a million files on a slow disk
	OpCreateContainer  = operation("create_container", time.Minute)
	OpStartContainer   = operation("start_container", time.Minute)
	OpStopContainer    = operation("stop_container", 20*time.Second) // on top of the grace period
	OpRemoveContainer  = operation("remove_container", time.Minute)  // includes the kill, and the deletion of the writable layer
	OpUpdateContainer  = operation("update_container", 30*time.Second)
	OpPauseContainer   = operation("pause_container", 30*time.Second) // the kernel may need a while for a container that makes many processes
	OpUnpauseContainer = operation("unpause_container", 30*time.Second)
	OpStatPath         = operation("stat_path", 30*time.Second) // the engine mounts a container that does not run, and all its mounts
	OpReadFile         = operation("read_file", 30*time.Second)
	OpReadTar          = operation("read_tar", time.Hour) // includes the use of the archive by the caller
	OpReadLogs         = operation("read_logs", 30*time.Second)
	OpWriteTar         = operation("write_tar", 10*time.Minute) // unless the caller sets one
	OpListNetworks     = operation("list_networks", 30*time.Second)
	OpCreateNetwork    = operation("create_network", 30*time.Second)
	OpRemoveNetwork    = operation("remove_network", 30*time.Second)
	OpInspectNetwork   = operation("inspect_network", 15*time.Second)
	OpConnectNetwork   = operation("connect_network", 30*time.Second)
	OpInspectImage     = operation("inspect_image", 15*time.Second)
	OpPullImage        = operation("pull_image", defaultPullTimeout)   // Options.PullTimeout replaces it
	OpCommitContainer  = operation("commit_container", 10*time.Minute) // copies all that the container has written
	OpRewriteImage     = operation("rewrite_image", 10*time.Minute)    // containerd's store shows layers only with their content
	OpBuildImage       = operation("build_image", time.Hour)           // unless the caller sets one
	OpListImages       = operation("list_images", 30*time.Second)
	OpRemoveImage      = operation("remove_image", 2*time.Minute) // includes the deletion of its layers
	OpInspectVolume    = operation("inspect_volume", 15*time.Second)
	OpCreateVolume     = operation("create_volume", 15*time.Second)
	OpListVolumes      = operation("list_volumes", 30*time.Second)
	OpListVolumeUsers  = operation("list_volume_users", 30*time.Second)
	OpRemoveVolume     = operation("remove_volume", time.Minute) // includes the deletion of its files
	OpEvents           = operation("events", 15*time.Second)     // until the subscription is accepted; the stream has none
)

var deadlines = map[string]time.Duration{}

func operation(name string, deadline time.Duration) string {
	deadlines[name] = deadline
	return name
}

// Ops returns the names of all operations.
func Ops() []string { return slices.Sorted(maps.Keys(deadlines)) }

// Deadline returns how long the operation named op waits for the engine before it returns ErrUnavailable. A stop waits this
// long beyond its grace period, a pull for Options.PullTimeout, a WriteTar for its within, a build for its Within. It is 0 for an unknown name.
func Deadline(op string) time.Duration { return deadlines[op] }
