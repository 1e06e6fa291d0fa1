package server

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/host/mountpolicy"
	"github.com/agbox/agbox/store"
)

// Store has the methods of the store that the handlers need; each group of handlers declares its own.
type Store interface {
	specStore
	sandboxStore
	lifetimeStore
	execStore
	attachStore
	eventStore
	agentStore
	agentHandleStore
	promptStore
	conversationStore
	feedStore
	gatewayStore
	// Drain returns the drain under way, or nil.
	Drain() *storev1.DrainRecord
}

// Rules are the part of the configuration under which a create is accepted. What they make of a spec is recorded.
type Rules struct {
	// Profile is the security profile of a spec that has none. Empty: standard.
	Profile string
	// SecurityAllow has the words of the settings by which a spec may loosen its profile.
	SecurityAllow []string
	// Entrypoint is whether the ENTRYPOINT of the image runs for a spec that does not say. Empty: auto.
	Entrypoint string
	// MemoryLimit in bytes is that of containers whose spec has none; 0: none.
	MemoryLimit int64
	// Mounts is the policy for mounts and copies of host paths.
	Mounts mountpolicy.Policy
	// NetworkMode is the mode of the network policy of a spec that has none. Empty: open.
	NetworkMode string
	// NetworkRequired: a spec without a policy is refused where none can be enforced.
	NetworkRequired bool
	// Resolvers returns the DNS servers that containers whose policies decide on names are created with. Nil: none.
	Resolvers func() []netip.Addr
}

// CallerLimits are the most objects of each caller; 0: no limit.
type CallerLimits struct{ Sandboxes, Pending, Execs int }

// Deps are the dependencies of a Server, all of them required.
type Deps struct {
	Store Store
	// Logs names the host paths of an exec's logs. It must not touch the disk.
	Logs func(sandboxID, execID string) (stdout, stderr string)
	// MainLogs returns the host paths of the logs of a sandbox's main process. It must not access the disk.
	MainLogs func(sandboxID string) (stdout, stderr string)
	// ServiceLog brings the file with a service's output up to date. problem says why that was not possible.
	ServiceLog func(ctx context.Context, sandboxID, service string) (path, problem string, err error)
	// ServiceOutput returns the file that ServiceLog brings up to date, at most limit bytes of it. Errors: not found.
	ServiceOutput func(sandboxID, service string, limit int64) ([]byte, error)
	// Outputs reads the logs of execs.
	Outputs Outputs
	// Channels opens streams to the processes that serve sandboxes.
	Channels Channels
	// Writers knows the clients that write the standard input of execs.
	Writers *Writers
	// Status returns what the daemon is doing for a sandbox, or "". It must not block.
	Status func(sandboxID string) string
	// AgentStatus returns what the daemon is doing for an agent, or "". unverified: the daemon has not observed the agent since it
	// started. It must not block.
	AgentStatus func(agentID string) (line string, unverified bool)
	Drainer     Drainer
	// Streams opens streams into READY sandboxes.
	Streams Streams
	// Opened is called for each stream with its path, one of Paths.
	Opened func(path string)
	// Archives reads files of sandboxes that do not run.
	Archives Archives
	// DrainWait is the wait of a drain whose caller names none. It must not block.
	DrainWait func() time.Duration
	// StartWarning returns what PID 1 of a sandbox reported about its present or last start, or "".
	StartWarning func(sandboxID string) string
	// Nameless reports whether the container of a sandbox does not reach the engine's DNS server.
	Nameless func(sandboxID string) bool
	// SecretProblems returns one sentence for each secret of a sandbox that is not as its file.
	SecretProblems func(sandboxID string) []string
	// DiskWarnings returns sentences about a disk limit that the engine does not hold. It must not block.
	DiskWarnings func(sb store.Sandbox) []string
	// Ports are the published ports of a sandbox as they are now. It must not block.
	Ports func(sandboxID string) []*agboxv1.PublishedPort
	// NetworkProblem returns in one sentence why no network policy can be enforced, or "". It must not block.
	NetworkProblem func() string
	// EngineRefuses returns the fields of a valid spec and its resolved confinement that the engine cannot honour. It must not block: the
	// answer may be older.
	EngineRefuses func(*agboxv1.CreateSpec, *storev1.Confinement) validate.Errors
	// FreezeRefusal says why the engine can't freeze containers; empty: it can. It must not block.
	FreezeRefusal func() string
	// Rules returns the present rules for a create. It may read paths of this host.
	Rules func() Rules
	// CallerLimits are those in force. It must not block.
	CallerLimits func() CallerLimits
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
	// Doctor returns what the daemon, the engine and its kernel are, and what they cannot enforce. It must not block.
	Doctor func() []*agboxv1.DoctorCheck
	// AttackTargets returns what a sandbox should not reach, as arguments of the shim's self-test.
	AttackTargets func(ctx context.Context, sandboxID string) ([]string, error)
	// CollectGarbage lists leftovers of deleted sandboxes, and removes them if requested.
	CollectGarbage func(ctx context.Context, req *agboxv1.CollectGarbageRequest) ([]*agboxv1.GarbageItem, error)
	// Stats returns what sandboxes use, without IDs all that run.
	Stats func(ctx context.Context, sandboxIDs []string) ([]*agboxv1.SandboxStats, error)
	// NetworkActivity returns what a sandbox reached and was denied in the last hour.
	NetworkActivity func(ctx context.Context, sandboxID string) (*agboxv1.GetNetworkActivityResponse, error)
	// Volumes lists the named volumes of a sandbox name, or all.
	Volumes func(ctx context.Context, sandboxName string) ([]*agboxv1.Volume, error)
	// RemoveVolume removes one.
	RemoveVolume func(ctx context.Context, sandboxName, volume string) error
	// CreateSnapshot makes a snapshot of a sandbox, and goes on if ctx ends before.
	CreateSnapshot func(ctx context.Context, sandboxID, id string) (*agboxv1.Snapshot, error)
	// Snapshots lists the snapshots of a sandbox, of an owner, or all.
	Snapshots func(ctx context.Context, sandboxID, owner string) ([]*agboxv1.Snapshot, error)
	// RemoveSnapshot removes one.
	RemoveSnapshot func(ctx context.Context, id string) error
	// Templates builds images for gateways.
	Templates Templates
	// Backup writes a backup to w.
	Backup func(ctx context.Context, w io.Writer, withLogs bool) error
	// Gateways returns the addresses of the gateways that the daemon serves, by name. It must not block.
	Gateways func() map[string]string
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
