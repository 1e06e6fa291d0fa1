package recovery

import (
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// Known is a sandbox whose record the log holds.
type Known struct {
	Record *storev1.SandboxRecord
	Execs  []*storev1.ExecRecord
	// Torn: the log has lost its end, so the newest changes of the sandbox and of its execs may be missing.
	Torn bool
	// Traces are what the files of its execs tell; Gather fills them in.
	Traces []execjournal.Trace
}

// Found is what the engine and the files show of one sandbox without a record, or with one that needs them. Of the latter
// there may be nothing.
type Found struct {
	ID string
	// Ctl is where the ctl directory of a sandbox of ours with this ID lies on the host. RunDir: it is there.
	Ctl    string
	RunDir bool
	// Released: PID 1 was let go in this run.
	Released bool
	// Containers were inspected, all or those that could be; Networks as listed.
	Containers []dockerx.ContainerDetail
	Networks   []dockerx.Network
	// Unreadable are the containers that could not be inspected.
	Unreadable []dockerx.Container
	Traces     []execjournal.Trace
	// Unread is how many files of execs could not be read.
	Unread int
}

// Input is all that Plan depends on but the time.
type Input struct {
	// Instance is the UUID of this store, and Former are others that are known to be its own.
	Instance string
	Former   []string
	Known    []Known
	Found    []Found
	// Images are those of containers without a readable label, by ID, as far as they are there: they tell an image's own
	// environment from the spec's.
	Images map[string]dockerx.Image
	// Skipped is what could not be looked at.
	Skipped []Skipped
	Settings
}

// Settings are what the daemon's configuration and the engine's life say.
type Settings struct {
	// Timeout is runtime.timeout; 0: never.
	Timeout time.Duration
	// PidsLimit is what a container has whose spec says nothing.
	PidsLimit int64
	// EngineRun is the engine's present life; nil or in part empty when it is not known.
	EngineRun *storev1.EngineRun
	// LifeSince is since when what runs has run at the longest: the start of the host or, of an engine without live-restore,
	// of its process. Zero when that is not known.
	LifeSince time.Time
}

// Skipped is something that is left as it is.
type Skipped struct {
	// Kind is "container", "network", "record" or "exec".
	Kind     string
	ID, Name string
	// SandboxID as its label says.
	SandboxID string
	// Reason is for a person.
	Reason string
	// Unreadable: it could not be looked at, so it may be ours.
	Unreadable bool
}
