package dockerx

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
	"github.com/docker/go-connections/sockets"
)

// minAPIVersion is that of Docker 20.10.
const minAPIVersion = "1.41"

// maxIdleConns lets 16 workers and the resync keep a connection each. The standard library's default keeps 2 per host and
// dials for each further request.
const maxIdleConns = 32

// endpoint is where the engine listens.
type endpoint struct{ url, network, address string }

// parseHost resolves Options.Host.
func parseHost(host string) (endpoint, error) {
	host = cmp.Or(host, os.Getenv(client.EnvOverrideHost), client.DefaultDockerHost)
	u, err := client.ParseHostURL(host)
	if err != nil {
		return endpoint{}, fmt.Errorf("docker host %q: %w: %w", host, err, errdefs.ErrInvalidArgument)
	}
	if u.Scheme != "unix" && u.Scheme != "tcp" {
		return endpoint{}, fmt.Errorf("docker host %q: only unix:// and tcp:// are supported: %w", host, errdefs.ErrInvalidArgument)
	}
	return endpoint{url: host, network: u.Scheme, address: u.Host}, nil
}

// dial opens a separate connection to the engine.
func (h endpoint) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, h.network, h.address)
}

// dialer builds the HTTP client of e; it does not dial.
func (e *Engine) dialer() error {
	t := &http.Transport{
		MaxIdleConns:        maxIdleConns,
		MaxIdleConnsPerHost: maxIdleConns,
		IdleConnTimeout:     90 * time.Second,
	}
	if err := sockets.ConfigureTransport(t, e.host.network, e.host.address); err != nil {
		return fmt.Errorf("docker host %q: %w: %w", e.host.url, err, errdefs.ErrInvalidArgument)
	}
	once := t.Clone()
	once.DisableKeepAlives = true
	e.http = &http.Client{Transport: &versionWatch{engine: e, base: t, once: once}, CheckRedirect: client.CheckRedirect}
	probe, err := e.sdk(api.DefaultVersion)
	e.probe = probe
	return err
}

// sdk returns an SDK client for one API version over the shared connections.
func (e *Engine) sdk(version string) (*client.Client, error) {
	h := *e.http // the SDK modifies the client that it receives
	c, err := client.NewClientWithOpts(client.WithHost(e.host.url), client.WithHTTPClient(&h), client.WithVersion(version))
	if err != nil {
		return nil, fmt.Errorf("docker host %q: %w: %w", e.host.url, err, errdefs.ErrInvalidArgument)
	}
	return c, nil
}

// negotiated is an SDK client that speaks a version the engine offered.
type negotiated struct {
	*client.Client
	offered string // the engine's Api-Version header: the newest that it speaks
}

// withClient calls f with a client for the negotiated API version.
func (e *Engine) withClient(ctx context.Context, f func(context.Context, *client.Client) error) error {
	c, err := e.negotiate(ctx)
	if err != nil {
		return err
	}
	err = f(ctx, c.Client)
	// The engine answers 400 to a version that it does not support, as to a bad request.
	if errdefs.IsInvalidArgument(err) && e.current.Load() != c {
		return fmt.Errorf("the engine's API version is no longer %s: %w", c.offered, errdefs.ErrUnavailable)
	}
	return err
}

// negotiate returns the client in use, or asks the engine for its version and creates one. Concurrent callers may each ask;
// no lock is held meanwhile.
func (e *Engine) negotiate(ctx context.Context) (*negotiated, error) {
	if c := e.current.Load(); c != nil {
		return c, nil
	}
	ping, err := e.probe.Ping(ctx)
	if err != nil {
		return nil, err
	}
	if ping.APIVersion == "" {
		return nil, fmt.Errorf("%s answers, but is not a Docker engine; check docker.host: %w", e.host.url, errdefs.ErrUnavailable)
	}
	if versions.LessThan(ping.APIVersion, minAPIVersion) {
		return nil, fmt.Errorf("the engine speaks API %s; agbox needs at least %s (Docker 20.10): %w",
			ping.APIVersion, minAPIVersion, errdefs.ErrFailedPrecondition)
	}
	version := api.DefaultVersion
	if versions.LessThan(ping.APIVersion, version) {
		version = ping.APIVersion
	}
	sdk, err := e.sdk(version)
	if err != nil {
		return nil, err
	}
	c := &negotiated{Client: sdk, offered: ping.APIVersion}
	e.current.Store(c)
	return c, nil
}

// versionWatch drops the negotiated client when a response carries another version than the client was created for: the
// engine sends its version with every response, including refusals of a version (observed with 20.10). It also reports
// the acceptance of a request: see acceptedKey.
type versionWatch struct {
	engine *Engine
	base   *http.Transport
	once   *http.Transport // for requests of accepting
}

// accepting returns a context whose requests each have a connection of their own, so that only an engine that still accepts connections
// answers. An engine that is ending closes its listener before it stops the first container, but answers on older connections until it is
// gone. Where systemd holds the socket, the new connection waits for the next engine.
func accepting(ctx context.Context) context.Context {
	return context.WithValue(ctx, acceptingKey{}, true)
}

type acceptingKey struct{}

func (w *versionWatch) RoundTrip(r *http.Request) (*http.Response, error) {
	t := w.base
	if r.Context().Value(acceptingKey{}) != nil {
		t = w.once
	}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	offered, c := resp.Header.Get("Api-Version"), w.engine.current.Load()
	if offered != "" && c != nil && c.offered != offered {
		w.engine.current.CompareAndSwap(c, nil)
	}
	if accepted, ok := r.Context().Value(acceptedKey{}).(*atomic.Bool); ok && resp.StatusCode == http.StatusOK {
		accepted.Store(true)
	}
	return resp, nil
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (w *versionWatch) CloseIdleConnections() { w.base.CloseIdleConnections() }
