package controller

import (
	"context"
	"io"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/exec"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// Store is what the controller and its rooms need of the store: reads, reports of what it found, and the two changes of intent
// that time brings about.
type Store interface {
	agent.Store
	agent.DrainStore
	exec.Store
	OnAgentCommit(func(agentID string))
	Leaving(ctx context.Context, sandboxID string) (int, error)
	InstanceIDs() []string
	OnCommit(func(sandboxID, execID string))
	Reserved(ctx context.Context, id string) (bool, error)
	List(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
	DeletedBefore(ctx context.Context, m clockjump.Moment, age time.Duration, limit int) ([]string, error)
	PurgeSandbox(ctx context.Context, id string) error
	Report(ctx context.Context, id string, r store.Report) error
	RequestIdleStop(ctx context.Context, id string, idleFor time.Duration, m clockjump.Moment) (bool, error)
	RequestCleanup(ctx context.Context, id string, after time.Duration, m clockjump.Moment) (bool, error)
	RequestStop(ctx context.Context, id, reason string) (bool, error)
	RequestExpire(ctx context.Context, id string, m clockjump.Moment) (bool, error)
	Demote(ctx context.Context, id string) (bool, error)
	RequestPauseCleanup(ctx context.Context, id string, after time.Duration, m clockjump.Moment) (bool, error)
	FrozenIDs() []string
	ExecKilledForMemory(ctx context.Context, sandboxID string, since time.Time) (bool, error)
	MarkerWritten(ctx context.Context) (bool, error)
	SetMarkerWritten(ctx context.Context) error
	EngineIdentity(ctx context.Context) (*storev1.EngineIdentity, error)
	SetEngineIdentity(ctx context.Context, id *storev1.EngineIdentity) error
	GiveUp(ctx context.Context, confirmed map[string]*storev1.GivenUp) error
	GivenUp(ctx context.Context) (map[string]*storev1.GivenUp, error)
	ForgetGivenUp(ctx context.Context, id string) error
	Unswept(ctx context.Context, id string) (bool, error)
	Clock(ctx context.Context) (*storev1.ClockRecord, error)
	SetClock(ctx context.Context, rec *storev1.ClockRecord) error
}

// Engine is what the controller needs of the container engine. Every call has a deadline of its own and is
// idempotent in the sense that removing or stopping what is gone succeeds.
type Engine interface {
	Info(ctx context.Context) (dockerx.Info, error)
	Events(ctx context.Context, since time.Time, labels map[string]string, ready func(), handle func(dockerx.Event)) error
	ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error)
	InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
	CreateContainer(ctx context.Context, spec dockerx.ContainerSpec) (string, error)
	StartContainer(ctx context.Context, id string) error
	UpdateContainer(ctx context.Context, id string, limits dockerx.Limits) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	PauseContainer(ctx context.Context, id string) error
	UnpauseContainer(ctx context.Context, id string) error
	RemoveContainer(ctx context.Context, id string) error
	ListNetworks(ctx context.Context, labels map[string]string) ([]dockerx.Network, error)
	CreateNetwork(ctx context.Context, spec dockerx.NetworkSpec) (dockerx.Network, error)
	RemoveNetwork(ctx context.Context, id string) error
	InspectNetwork(ctx context.Context, id string) (dockerx.Network, error)
	ConnectNetwork(ctx context.Context, networkID, containerID string, aliases []string) error
	InspectImage(ctx context.Context, ref string) (dockerx.Image, error)
	EnsureImage(ctx context.Context, ref string, o dockerx.PullOptions) (dockerx.Image, error)
	StatPath(ctx context.Context, id, path string) (dockerx.PathInfo, error)
	ReadContainerFile(ctx context.Context, id, path string, limit int64) ([]byte, error)
	WriteTar(ctx context.Context, id, dir string, within time.Duration, tar io.Reader) error
	VolumeExists(ctx context.Context, name string) (bool, error)
	CreateVolume(ctx context.Context, name string, labels map[string]string) error
}

// Execs is the host's side of the files through which execs are started, cancelled and reported. It needs no engine.
type Execs interface {
	agent.Files
	exec.Files
	Prepare(sandboxID string) (execjournal.Paths, error)
	Prepared(sandboxID string) (bool, error)
	RemoveInputs(sandboxID string) error
	Remove(sandboxID string) error
	Usage(sandboxID string) (execjournal.Usage, error)
	SetFull(sandboxID string, full bool) error
	DropLogs(sandboxID string, keep func(execID string) bool) (freed int64, err error)
	Dirs() ([]execjournal.SandboxDir, error)
	RemoveDir(path string) error
	Release(sandboxID string) error
	Released(sandboxID string) (bool, error)
	Terminated(sandboxID string) (bool, error)
	Prove(sandboxID string, c execjournal.Container) (execjournal.Proof, error)
	Withhold(sandboxID string) error
}
