package server

import (
	"context"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/host/mountpolicy"
	"github.com/agbox/agbox/store"
)

// Store are the methods of the store that the server needs.
type Store interface {
	InstanceID() string
	CheckCreate(ctx context.Context, id, name string, spec *agboxv1.CreateSpec, without string) error
	CreateSandbox(ctx context.Context, id, name string, spec *agboxv1.CreateSpec, r *store.Resolved) (store.Sandbox, error)
	UpdateSpec(ctx context.Context, id string, timeout time.Duration, change store.SpecChange) (sb store.Sandbox, changed []string, err error)
	RequestPause(ctx context.Context, id, reason string) (changed bool, err error)
	RequestStop(ctx context.Context, id, reason string) (changed bool, err error)
	RequestResume(ctx context.Context, id string) (changed bool, err error)
	RequestRecover(ctx context.Context, id string) (changed bool, err error)
	RequestDelete(ctx context.Context, id, reason string) (changed bool, err error)
	RequestDeleteKeepingAgents(ctx context.Context, id, reason string) (changed bool, err error)
	RequestDeleteWithVolumes(ctx context.Context, id, reason string, keepAgents bool) (changed bool, err error)
	RequestDeleteMatching(ctx context.Context, selector map[string]string, reason string) (ids []string, err error)
	SetTimeout(ctx context.Context, id string, t store.Timeout) (deadline time.Time, changed bool, err error)
	CreateExec(ctx context.Context, req *agboxv1.CreateExecRequest) (store.Exec, error)
	RequestCancel(ctx context.Context, execID string) (changed bool, err error)
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	List(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
	Exec(ctx context.Context, execID string) (store.Exec, error)
	ActiveExecs(sandboxID string) []string
	Execs(ctx context.Context, f store.ExecFilter) (store.ExecPage, error)
	Events(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.SandboxEvent, error)
	EventsAfter(ctx context.Context, id string, c store.Cursor, limit int) ([]*agboxv1.SandboxEvent, error)
	Watch(id string) (changed <-chan struct{}, stop func())

	CheckCreateAgent(ctx context.Context, id, name string, spec *agboxv1.AgentSpec) error
	CreateAgent(ctx context.Context, id, name string, spec *agboxv1.AgentSpec) (store.Agent, error)
	RequestAgentRun(ctx context.Context, id string) (changed bool, err error)
	RequestAgentStop(ctx context.Context, id string) (changed bool, err error)
	RequestAgentDelete(ctx context.Context, id string) (changed bool, err error)
	RequestMove(ctx context.Context, id, sandboxID string) (changed bool, err error)
	Destination(id string) string
	RequestInterrupt(ctx context.Context, id string) (changed bool, err error)
	QueuedPrompts(ctx context.Context, id string, limit int) ([]*storev1.AgentPrompt, error)
	QueuePrompt(ctx context.Context, id, promptID, text string) (store.Queued, error)
	RequestRedelivery(ctx context.Context, id, promptID string) (changed bool, err error)
	WithdrawPrompt(ctx context.Context, id, promptID string) (changed bool, err error)
	Agent(ctx context.Context, id string) (store.Agent, error)
	AgentByName(ctx context.Context, name string) (store.Agent, error)
	Agents(f store.AgentFilter) []store.Agent
	AgentEvents(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentEvent, error)
	Transitions(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentTransition, error)
	WatchAgent(id string) (changed <-chan struct{}, stop func())
	WatchAll() (feed *store.Feed, stop func())
	Drain() *storev1.DrainRecord
}

// Drainer ends the work of the daemon in good order.
type Drainer interface {
	// Drain starts a drain and returns. Errors: Refusal DRAIN_INVALID_STATE during another drain.
	Drain(ctx context.Context, o store.DrainOptions) (*agboxv1.DrainStatus, error)
	// Undrain ends it. changed is false if there was none.
	Undrain(ctx context.Context) (changed bool, err error)
	// DrainStatus must not block.
	DrainStatus() *agboxv1.DrainStatus
}

// Rules are the part of the configuration under which a create is accepted. What they make of a spec is recorded.
type Rules struct {
	// Profile is the security profile of a spec that has none. Empty: standard.
	Profile string
	// MemoryLimit in bytes is that of containers whose spec has none; 0: none.
	MemoryLimit int64
	// Mounts is the policy for mounts and copies of host paths.
	Mounts mountpolicy.Policy
}

// Deps are the dependencies of a Server, all of them required.
type Deps struct {
	Store Store
	// Logs names the host paths of an exec's logs. It must not touch the disk.
	Logs func(sandboxID, execID string) (stdout, stderr string)
	// MainLogs returns the host paths of the logs of a sandbox's main process. It must not access the disk.
	MainLogs func(sandboxID string) (stdout, stderr string)
	// ServiceLog brings the file with a service's output up to date. problem says why that was not possible.
	ServiceLog func(ctx context.Context, sandboxID, service string) (path, problem string, err error)
	// Status returns what the daemon is doing for a sandbox, or "". It must not block.
	Status func(sandboxID string) string
	// AgentStatus returns what the daemon is doing for an agent, or "". unverified: the daemon has not observed the agent since it
	// started. It must not block.
	AgentStatus func(agentID string) (line string, unverified bool)
	Drainer     Drainer
	// DrainWait is the wait of a drain whose caller names none. It must not block.
	DrainWait func() time.Duration
	// Nameless reports whether the container of a sandbox does not reach the engine's DNS server.
	Nameless func(sandboxID string) bool
	// Ports are the published ports of a sandbox as they are now. It must not block.
	Ports func(sandboxID string) []*agboxv1.PublishedPort
	// EngineRefuses returns the fields of a valid spec and its resolved confinement that the engine cannot honour. It must not block: the
	// answer may be older.
	EngineRefuses func(*agboxv1.CreateSpec, *storev1.Confinement) validate.Errors
	// Rules returns the present rules for a create. It may read paths of this host.
	Rules func() Rules
	// DefaultTimeout is for a sandbox whose spec has no timeout; 0: forever. It must not block.
	DefaultTimeout func() time.Duration
	// Rebuilding returns one sentence while records are being rebuilt, so that an object without a record may still exist; otherwise
	// "", from then on always. It must not block.
	Rebuilding func() string
	// NoRoom returns one sentence if the disk is too full for new objects, or "". It must not block.
	NoRoom func() string
	// Engine returns the problem of the engine in one sentence, or "". It must not block.
	Engine func() string
	// ConfirmEngine accepts the engine and gives up sandboxes that vanished from it. It may take 15 s.
	ConfirmEngine func(ctx context.Context) (*agboxv1.ConfirmEngineResponse, error)
	// Explain explains a sandbox: desired state, observations, differences, next steps.
	Explain func(ctx context.Context, sandboxID string) (*agboxv1.ExplainResponse, error)
	// ExplainAgent is Explain for an agent.
	ExplainAgent func(ctx context.Context, agentID string) (*agboxv1.ExplainResponse, error)
	// CollectGarbage lists leftovers of deleted sandboxes, and removes them if requested.
	CollectGarbage func(ctx context.Context, req *agboxv1.CollectGarbageRequest) ([]*agboxv1.GarbageItem, error)
	// Volumes lists the named volumes of a sandbox name, or all.
	Volumes func(ctx context.Context, sandboxName string) ([]*agboxv1.Volume, error)
	// RemoveVolume removes one.
	RemoveVolume func(ctx context.Context, sandboxName, volume string) error
	// Backup writes a backup to w.
	Backup func(ctx context.Context, w io.Writer, withLogs bool) error
	// Version is the version that Ping returns.
	Version string
	// Home replaces "~" in config_yaml and in the paths of built-in tools: the home of the daemon's user.
	Home string
	// Now is the wall clock by which a deadline lies in the past.
	Now    func() time.Time
	Logger *slog.Logger
	// Observe is called once per finished call. method is the full name, of a closed set.
	Observe func(method string, code codes.Code, d time.Duration)
}
