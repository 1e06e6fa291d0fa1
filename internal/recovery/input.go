package recovery

import (
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// Known is a sandbox with a record in the log.
type Known struct {
	Record *storev1.SandboxRecord
	Execs  []*storev1.ExecRecord
	// Torn: the end of the log is lost, so the newest changes of the sandbox and of its execs may be missing.
	Torn bool
	// Traces come from the files of its execs; Gather sets them.
	Traces []execjournal.Trace
}

// Found is the data from engine and files about one sandbox without a record, or with an incomplete one. In the latter case
// it may be empty.
type Found struct {
	ID string
	// Ctl is the host path of the ctl directory for a sandbox of this daemon with this ID. RunDir: it exists.
	Ctl    string
	RunDir bool
	// Released: PID 1 was released in this run.
	Released bool
	// Containers are inspected, as far as possible; Networks are as listed.
	Containers []dockerx.ContainerDetail
	Networks   []dockerx.Network
	// Unreadable are the containers whose inspection failed.
	Unreadable []dockerx.Container
	Traces     []execjournal.Trace
	// Unread is the number of exec files that could not be read.
	Unread int
}

// Input is everything that Plan depends on except the time.
type Input struct {
	// Instance is the UUID of this store, and Former are previous ones of this daemon.
	Instance string
	Former   []string
	Known    []Known
	Found    []Found
	// Images are the images of containers without a readable label, by ID, as far as they exist: with them, an image's
	// environment is distinguished from the spec's.
	Images map[string]dockerx.Image
	// Skipped are the objects that could not be read.
	Skipped []Skipped
	Settings
}

// Settings come from the daemon's configuration and the engine.
type Settings struct {
	// Timeout is runtime.timeout; 0: none.
	Timeout time.Duration
	// PidsLimit is the limit of a container whose spec sets none.
	PidsLimit int64
	// EngineRun is the engine's present run; nil or partly empty when unknown.
	EngineRun *storev1.EngineRun
	// LifeSince is the earliest possible start of a running container: the boot of the host or, for an engine without
	// live-restore, the start of its process. Zero when unknown.
	LifeSince time.Time
}

// Skipped is an object that is left alone.
type Skipped struct {
	// Kind is "container", "network", "record" or "exec".
	Kind     string
	ID, Name string
	// SandboxID is the one in its label.
	SandboxID string
	// Reason is for the user.
	Reason string
	// Unreadable: reading it failed, so it may belong to this daemon.
	Unreadable bool
}
