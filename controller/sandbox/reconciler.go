package sandbox

import (
	"context"
	"hash/maphash"
	"io"
	"log/slog"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/controller/scratch"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
)

// RecordStore is what a pass reads of the store, its reports, and the changes of desired state that a deadline causes.
type RecordStore interface {
	Store
	RebuildPending() bool
	Report(ctx context.Context, id string, r store.Report) error
	RequestIdleStop(ctx context.Context, id string, idleFor time.Duration, m clockjump.Moment) (bool, error)
	RequestCleanup(ctx context.Context, id string, after time.Duration, m clockjump.Moment) (bool, error)
	RequestStop(ctx context.Context, id, reason string) (bool, error)
	RequestExpire(ctx context.Context, id string, m clockjump.Moment) (bool, error)
	Demote(ctx context.Context, id string) (bool, error)
	RequestPauseCleanup(ctx context.Context, id string, after time.Duration, m clockjump.Moment) (bool, error)
}

// ContainerEngine is the part of the engine that a pass uses.
type ContainerEngine interface {
	Engine
	CreateContainer(ctx context.Context, spec dockerx.ContainerSpec) (string, error)
	StartContainer(ctx context.Context, id string) error
	UpdateContainer(ctx context.Context, id string, limits dockerx.Limits) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	PauseContainer(ctx context.Context, id string) error
	UnpauseContainer(ctx context.Context, id string) error
	RemoveContainer(ctx context.Context, id string) error
	RemoveVolume(ctx context.Context, name string) error
	ListVolumeUsers(ctx context.Context, name string) ([]dockerx.Container, error)
	CreateNetwork(ctx context.Context, spec dockerx.NetworkSpec) (dockerx.Network, error)
	RemoveNetwork(ctx context.Context, id string) error
	ConnectNetwork(ctx context.Context, networkID, containerID string, aliases []string) error
	InspectImage(ctx context.Context, ref string) (dockerx.Image, error)
	EnsureImage(ctx context.Context, ref string, o dockerx.PullOptions) (dockerx.Image, error)
	StatPath(ctx context.Context, id, path string) (dockerx.PathInfo, error)
	ReadContainerFile(ctx context.Context, id, path string, limit int64) ([]byte, error)
	WriteTar(ctx context.Context, id, dir string, within time.Duration, tar io.Reader) error
}

// HostFiles are the files of a sandbox on the host.
type HostFiles interface {
	Files
	Paths(sandboxID string) execjournal.Paths
	Prepare(sandboxID string) (execjournal.Paths, error)
	ServiceSecrets(sandboxID, service string) (string, error)
	RemoveInputs(sandboxID string) error
	Remove(sandboxID string) error
	DropLogs(sandboxID string, keep func(execID string) bool) (freed int64, err error)
	Start(sandboxID string, r execjournal.Request) error
	Cancel(sandboxID, execID, nonce string) error
	Forget(sandboxID, execID string) error
	Release(sandboxID string) error
	Released(sandboxID string) (bool, error)
	Prove(sandboxID string, c execjournal.Container) (execjournal.Proof, error)
	Withhold(sandboxID string) error
	ServiceLogPath(sandboxID, service string) string
	ServiceLog(sandboxID, service string, limit int64) ([]byte, error)
	ReplaceServiceLog(sandboxID, service string, data []byte) error
}

// EngineLink is *enginelink.Link.
type EngineLink interface {
	Link
	Life() (run *storev1.EngineRun, problem string)
	Info() dockerx.Info
	Problem() string
	UsableSince() time.Time
}

// AbsenceKeeper is *absence.Keeper.
type AbsenceKeeper interface {
	Absences
	Forget(id string, o *storev1.Objects)
}

// Networks is *network.Keeper.
type Networks interface {
	Holds(sb store.Sandbox, networkID string) bool
	Enforce(sb store.Sandbox, networkID string) error
	Release(networkID string)
}

// Secrets is *secret.Keeper.
type Secrets interface {
	Want(sb store.Sandbox)
	Deliver(sandboxID string) error
}

// Host is what containers get from the host, and how that is checked.
type Host struct {
	// ShimDir is the host directory of the agbox-shim that new containers mount.
	ShimDir string
	// CoverDir is the host directory with the empty directory "dir" and the empty file "file", which cover agboxd's own paths inside
	// mounts. Its path contains no symbolic link.
	CoverDir string
	// CheckMounted checks that the mounts of a running container are what their sources name; see hostfiles.CheckMounted. Nil: they are not
	// checked.
	CheckMounted func(pid int, known hostfiles.Mounted, mounts []hostfiles.Mounted) (seen bool, err error)
	// HostUID and HostGID are in the environment of every container, and the numbers of the user agbox where the image lacks it.
	HostUID, HostGID int
}

// Options are the dependencies of a Reconciler. All are required, except CheckMounted.
type Options struct {
	Store    RecordStore
	Engine   ContainerEngine
	Objects  owned.Objects
	Files    HostFiles
	Link     EngineLink
	Absences AbsenceKeeper
	Clock    *clock.Clock
	Queue    *queue.Loop

	// Settings returns the settings of the next pass. Started is when the daemon started.
	Settings func() Settings
	Started  time.Time
	// Turns returns the number of agents whose turns the stop of a sandbox waits for.
	Turns func(ctx context.Context, rec plan.Record) int
	// Committing reports whether an image of the primary of a sandbox is being made. It must not block.
	Committing func(sandboxID string) bool
	// EnqueueExecs and EnqueueAgents enqueue the execs and the agents of a sandbox.
	EnqueueExecs, EnqueueAgents func(sandboxID string)
	// NoRoom returns why the disk is full, in one sentence, or "". It does not block.
	NoRoom func() string
	// RoomNow is NoRoom after the disks were read.
	RoomNow func() string
	// MakeRoom frees disk space if an error of the removal of files says that there was none, and returns the error: on a full btrfs not even
	// a rename succeeds. It must not block for long.
	MakeRoom func(error) error
	Secrets  Secrets
	Networks Networks

	Host
	Logger  *slog.Logger
	Metrics *metrics.Metrics
}

// Reconciler makes passes over sandboxes. Its memory is derived state and is lost with the process.
type Reconciler struct {
	o       Options
	log     *slog.Logger
	reader  *Reader
	scratch scratchpad
	kills   killBoard
	ops     *queue.Operations[plan.Kind]
	// fileRemovals and containerRemovals use no workers of the queues.
	fileRemovals, containerRemovals pool
	serviceLogs                     stripes
}

// New returns a reconciler.
func New(o Options) *Reconciler {
	r := &Reconciler{
		o: o, log: o.Logger, scratch: scratchpad{scratch.New[memory]()},
		fileRemovals: make(pool, maxFileRemovals), containerRemovals: make(pool, maxContainerRemovals),
	}
	r.serviceLogs.seed = maphash.MakeSeed()
	r.ops = queue.NewOperations(o.Queue.Add, plan.Kind.Unseen)
	r.reader = &Reader{readerOptions{
		Store: o.Store, Engine: o.Engine, Objects: o.Objects, Files: o.Files, Link: o.Link, Absences: o.Absences,
		Settings: o.Settings, Started: o.Started, Tries: o.Queue.Tries, Turns: o.Turns,
		Killed: r.kills.has, Hook: func(id string) HookWait { return r.scratch.Get(id).hook },
		Start:      func(id string) HookWait { return r.scratch.Get(id).start },
		Stopping:   func(id string) []string { return r.ops.Subjects(id, plan.StopContainer) },
		Committing: o.Committing, Confined: o.Networks.Holds, EngineSince: o.Link.UsableSince,
	}}
	return r
}

// Reader returns the observing half.
func (r *Reconciler) Reader() *Reader { return r.reader }

// Note records an event of the engine.
func (r *Reconciler) Note(e dockerx.Event) { r.kills.note(e) }

// Wait returns when all background operations have ended. Each runs under the context of the pass that started it.
func (r *Reconciler) Wait() { r.ops.Wait() }

// Status returns in one sentence what a sandbox waits for or its last error; empty if it is as wanted.
func (r *Reconciler) Status(sandboxID string) string {
	line := r.scratch.Get(sandboxID).status
	if line == engineAway {
		return r.o.Link.Problem()
	}
	return line
}

// Recorded returns the status as the last pass set it, for a comparison with plan.Plan.Waiting.
func (r *Reconciler) Recorded(sandboxID string) (status string) {
	return r.scratch.Get(sandboxID).status
}
