package dockerx

import (
	"maps"
	"slices"
	"time"
)

// Names of the operations, as Options.Observe receives them. The set is fixed, so it can be a metric label.
const (
	OpInfo             = "info"
	OpListContainers   = "list_containers"
	OpInspectContainer = "inspect_container"
	OpCreateContainer  = "create_container"
	OpStartContainer   = "start_container"
	OpStopContainer    = "stop_container"
	OpRemoveContainer  = "remove_container"
	OpUpdateContainer  = "update_container"
	OpPauseContainer   = "pause_container"
	OpUnpauseContainer = "unpause_container"
	OpStatPath         = "stat_path"
	OpReadFile         = "read_file"
	OpWriteTar         = "write_tar"
	OpListNetworks     = "list_networks"
	OpCreateNetwork    = "create_network"
	OpRemoveNetwork    = "remove_network"
	OpInspectNetwork   = "inspect_network"
	OpConnectNetwork   = "connect_network"
	OpInspectImage     = "inspect_image"
	OpPullImage        = "pull_image"
	OpInspectVolume    = "inspect_volume"
	OpCreateVolume     = "create_volume"
	OpEvents           = "events"
)

// operations are all operations with their deadlines. An idle engine answers in milliseconds; the deadlines allow for one
// that starts 16 containers at once on a slow disk, and still bound the wait for a hung engine.
var operations = map[string]time.Duration{
	OpInfo:             10 * time.Second,
	OpListContainers:   30 * time.Second,
	OpInspectContainer: 15 * time.Second,
	OpCreateContainer:  time.Minute,
	OpStartContainer:   time.Minute,
	OpStopContainer:    20 * time.Second, // on top of the grace period
	OpRemoveContainer:  time.Minute,      // includes the kill, and the deletion of the writable layer
	OpUpdateContainer:  30 * time.Second,
	OpPauseContainer:   30 * time.Second, // the kernel may need a while for a container that makes many processes
	OpUnpauseContainer: 30 * time.Second,
	OpStatPath:         30 * time.Second, // the engine mounts a container that does not run, and all its mounts
	OpReadFile:         30 * time.Second,
	OpWriteTar:         10 * time.Minute, // unless the caller sets one
	OpListNetworks:     30 * time.Second,
	OpCreateNetwork:    30 * time.Second,
	OpRemoveNetwork:    30 * time.Second,
	OpInspectNetwork:   15 * time.Second,
	OpConnectNetwork:   30 * time.Second,
	OpInspectImage:     15 * time.Second,
	OpPullImage:        defaultPullTimeout, // Options.PullTimeout replaces it
	OpInspectVolume:    15 * time.Second,
	OpCreateVolume:     15 * time.Second,
	OpEvents:           15 * time.Second, // until the subscription is accepted; the stream has none
}

// Ops returns the names of all operations.
func Ops() []string { return slices.Sorted(maps.Keys(operations)) }

// Deadline returns how long the operation named op waits for the engine before it returns ErrUnavailable. A stop waits this
// long beyond its grace period, a pull for Options.PullTimeout, a WriteTar for its within. It is 0 for an unknown name.
func Deadline(op string) time.Duration { return operations[op] }
