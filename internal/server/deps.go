package server

import (
	"context"
	"io"
	"log/slog"
	"os"
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
	AgentStore
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
	RequestDeleteMatching(ctx context.Context, selector map[string]string, reason string) (ids []string, err error)
	SetTimeout(ctx context.Context, id string, t store.Timeout) (deadline time.Time, changed bool, err error)
	CreateExec(ctx context.Context, req *agboxv1.CreateExecRequest) (store.Exec, error)
	RequestCancel(ctx context.Context, execID string) (changed bool, err error)
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	List(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
	Exec(ctx context.Context, execID string) (store.Exec, error)
	ActiveExecs(sandboxID string) []string
	Events(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.SandboxEvent, error)
	EventsAfter(ctx context.Context, id string, c store.Cursor, limit int) ([]*agboxv1.SandboxEvent, error)
	Watch(id string) (changed <-chan struct{}, stop func())
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

// Deps are the dependencies of a Server. Store and Logs are required.
type Deps struct {
	Store Store
	// Logs names the host paths of an exec's logs. It must not touch the disk.
	Logs func(sandboxID, execID string) (stdout, stderr string)
	// MainLogs returns the host paths of the logs of a sandbox's main process. It must not access the disk. Nil: unknown.
	MainLogs func(sandboxID string) (stdout, stderr string)
	// Status returns what the daemon is doing for a sandbox, or "". It must not block.
	Status func(sandboxID string) string
	// AgentStatus returns what the daemon is doing for an agent, or "". unverified: the daemon has not observed the agent since it
	// started. It must not block. Nil: "", false.
	AgentStatus func(agentID string) (line string, unverified bool)
	// Drainer; nil: drains are UNAVAILABLE.
	Drainer Drainer
	// Nameless reports whether the container of a sandbox does not reach the engine's DNS server.
	Nameless func(sandboxID string) bool
	// Ports are the published ports of a sandbox as they are now. It must not block.
	Ports func(sandboxID string) []*agboxv1.PublishedPort
	// EngineRefuses returns the fields of a valid spec and its resolved confinement that the engine cannot honour. It must not block: the
	// answer may be older. Nil: nothing is refused.
	EngineRefuses func(*agboxv1.CreateSpec, *storev1.Confinement) validate.Errors
	// Rules returns the present rules for a create. It may read paths of this host. Nil: the zero Rules.
	Rules func() Rules
	// DefaultTimeout is for a sandbox whose spec has no timeout; 0: forever. It must not block. Nil: 0.
	DefaultTimeout func() time.Duration
	// Rebuilding returns one sentence while records are being rebuilt, so that an object without a record may still exist; otherwise
	// "", from then on always. It must not block. Nil: "".
	Rebuilding func() string
	// NoRoom returns one sentence if the disk is too full for new objects, or "". It must not block. Nil: "".
	NoRoom func() string
	// Engine returns the problem of the engine in one sentence, or "". It must not block.
	Engine func() string
	// ConfirmEngine accepts the engine and gives up sandboxes that vanished from it. It may take 15 s. Nil: the call is UNAVAILABLE.
	ConfirmEngine func(ctx context.Context) (*agboxv1.ConfirmEngineResponse, error)
	// Explain explains a sandbox: desired state, observations, differences, next steps. Nil: the call is UNAVAILABLE.
	Explain func(ctx context.Context, sandboxID string) (*agboxv1.ExplainResponse, error)
	// ExplainAgent is Explain for an agent.
	ExplainAgent func(ctx context.Context, agentID string) (*agboxv1.ExplainResponse, error)
	// CollectGarbage lists leftovers of deleted sandboxes, and removes them if requested. Nil: the call is UNAVAILABLE.
	CollectGarbage func(ctx context.Context, req *agboxv1.CollectGarbageRequest) ([]*agboxv1.GarbageItem, error)
	// Backup writes a backup to w. Nil: there are none.
	Backup func(ctx context.Context, w io.Writer, withLogs bool) error
	// Version is the version that Ping returns.
	Version string
	// Home replaces "~" in config_yaml and in the paths of built-in tools: the home of the daemon's user.
	Home string
	// Now is the wall clock by which a deadline lies in the past; nil: time.Now.
	Now func() time.Time
	// Getenv is the environment in which built-in tools are found; nil: os.Getenv.
	Getenv func(string) string
	// Logger; nil: slog.Default().
	Logger *slog.Logger
	// Observe is called once per finished call. method is the full name, of a closed set.
	Observe func(method string, code codes.Code, d time.Duration)
	// OnPanic is called for each panic that was recovered.
	OnPanic func(method string)
}

func (d Deps) withDefaults() Deps {
	if d.Status == nil {
		d.Status = func(string) string { return "" }
	}
	if d.MainLogs == nil {
		d.MainLogs = func(string) (string, string) { return "", "" }
	}
	if d.AgentStatus == nil {
		d.AgentStatus = func(string) (string, bool) { return "", false }
	}
	if d.Nameless == nil {
		d.Nameless = func(string) bool { return false }
	}
	if d.Ports == nil {
		d.Ports = func(string) []*agboxv1.PublishedPort { return nil }
	}
	if d.EngineRefuses == nil {
		d.EngineRefuses = func(*agboxv1.CreateSpec, *storev1.Confinement) validate.Errors { return nil }
	}
	if d.Rules == nil {
		d.Rules = func() Rules { return Rules{} }
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.DefaultTimeout == nil {
		d.DefaultTimeout = func() time.Duration { return 0 }
	}
	if d.Rebuilding == nil {
		d.Rebuilding = func() string { return "" }
	}
	if d.NoRoom == nil {
		d.NoRoom = func() string { return "" }
	}
	if d.Getenv == nil {
		d.Getenv = os.Getenv
	}
	if d.Engine == nil {
		d.Engine = func() string { return "" }
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	if d.Observe == nil {
		d.Observe = func(string, codes.Code, time.Duration) {}
	}
	if d.OnPanic == nil {
		d.OnPanic = func(string) {}
	}
	return d
}
