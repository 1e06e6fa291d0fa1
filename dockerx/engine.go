package dockerx

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/agbox/agbox/dockerx/internal/flight"
	"github.com/agbox/agbox/dockerx/internal/subnet"
	"github.com/agbox/agbox/internal/fault"
)

const defaultPullTimeout = 10 * time.Minute

// defaultSubnetPool has room for 4096 networks of a /28 each, in a block that few home and cloud networks use.
var defaultSubnetPool = netip.MustParsePrefix("10.213.0.0/16")

// Options configure an Engine. The zero value is usable.
type Options struct {
	// Host is "unix:///path" or "tcp://host:port". Empty: DOCKER_HOST, else unix:///var/run/docker.sock. TLS is not
	// supported: bind mounts need an engine on this host anyway.
	Host string
	// SubnetPool is the IPv4 block from which CreateNetwork allocates subnets. Zero: 10.213.0.0/16.
	SubnetPool netip.Prefix
	// PullTimeout bounds one pull of one image. Zero: 10 minutes.
	PullTimeout time.Duration
	// CredentialsDir holds the Docker CLI's config.json with the credentials for registries. It is read at each pull.
	// Empty: the CLI's default for the user of this process, which is the directory in DOCKER_CONFIG, else ~/.docker.
	CredentialsDir string
	// Observe is called once per completed operation, with a name of Ops. It must not block. May be nil.
	Observe func(op string, d time.Duration, err error)
}

// Engine is a client of one Docker engine. Its methods may be called from any number of goroutines.
//
// The API version is negotiated with the first call that reaches the engine, and again when a response carries another
// version. A call that fails because of such a change returns ErrUnavailable.
type Engine struct {
	o        Options
	host     endpoint
	http     *http.Client // base of all SDK clients; watches the engine's version
	probe    *client.Client
	current  atomic.Pointer[negotiated] // nil: negotiate before the next call
	subnets  *subnet.Allocator
	routes   func() ([]netip.Prefix, error) // of the host
	networks directory
	pulls    *flight.Group[Image, PullProgress]
	run      runSource
	freezer  hostFreezer
	usage    usageReader
}

// New returns an Engine without dialling. Errors: ErrInvalidArgument for an invalid option.
func New(o Options) (*Engine, error) {
	host, err := parseHost(o.Host)
	if err != nil {
		return nil, err
	}
	if !o.SubnetPool.IsValid() {
		o.SubnetPool = defaultSubnetPool
	}
	if o.PullTimeout <= 0 {
		o.PullTimeout = defaultPullTimeout
	}
	subnets, err := subnet.NewAllocator(o.SubnetPool)
	if err != nil {
		return nil, fmt.Errorf("docker.subnet_pool: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	e := &Engine{
		o: o, host: host, subnets: subnets, routes: hostRoutes, run: hostRunSource, freezer: theHostFreezer,
		usage: usageReader{proc: theHostFreezer.proc, cgroup: theHostFreezer.cgroup},
		pulls: flight.NewGroup[Image, PullProgress](),
	}
	return e, e.dialer()
}

// Close cancels running pulls, waits for them, and closes idle connections. Event streams end with their own contexts. No
// method may be called afterwards.
func (e *Engine) Close() error {
	e.pulls.Close()
	e.http.CloseIdleConnections()
	return nil
}

// do runs one engine operation: deadline, API version, error class, observation. what is the attempt, for the error.
func (e *Engine) do(ctx context.Context, op, what string, f func(context.Context, *client.Client) error) error {
	return about(what, e.doWithin(ctx, op, Deadline(op), f))
}

// ask is do for an operation with an answer, which is zero when the operation failed.
func ask[T any](ctx context.Context, e *Engine, op, what string, f func(context.Context, *client.Client) (T, error)) (T, error) {
	var out, zero T
	err := e.do(ctx, op, what, func(ctx context.Context, c *client.Client) (err error) {
		out, err = f(ctx, c)
		return err
	})
	if err != nil {
		return zero, err
	}
	return out, nil
}

// doWithin is do with a deadline of the caller, and without the attempt.
func (e *Engine) doWithin(ctx context.Context, op string, d time.Duration, f func(context.Context, *client.Client) error) error {
	start := time.Now()
	opCtx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err := classify(ctx, d, fault.Around(fault.Engine, op, func() error { return e.withClient(opCtx, f) }))
	e.observed(op, start, err)
	return err
}

func (e *Engine) observed(op string, start time.Time, err error) {
	if e.o.Observe != nil {
		e.o.Observe(op, time.Since(start), err)
	}
}
