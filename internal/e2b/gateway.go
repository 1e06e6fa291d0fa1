// Package e2b serves the API of E2B's SDKs on top of our own. It is a client of agbox.v1, and remembers nothing that it could not find out again:
// what must last is in the specs of its sandboxes (CreateSpec.gateway) and in the keys and the secret of GatewayService.
//
// A client sees the sandboxes of its key's owner and no others.
package e2b

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"

	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// Name is the name of this gateway in PingResponse.
const Name = "e2b"

const (
	// DefaultTemplate is the template of a create that names none, and defaultImage its image unless the configuration has another.
	DefaultTemplate = "base"
	defaultImage    = "agbox-dev:dev"
	// envdVersion decides which features clients use.
	envdVersion = "0.5.7"
	// clientID is a field that clients require and do not use.
	clientID = "agbox"
	// keyPrefix starts each API key.
	keyPrefix = "e2b_"
	// user is that of commands and files unless a client names another.
	user = "user"
	home = "/home/" + user
)

// Options are the dependencies of a Gateway, all of them required.
type Options struct {
	// Conn is a connection to the daemon.
	Conn grpc.ClientConnInterface
	// Templates returns the images of templates by name. It must not block.
	Templates func() map[string]string
	// MaxFrozen returns how many sandboxes may be frozen; 0: any number. It must not block.
	MaxFrozen func() int
	// Domain is that of the host names of sandboxes, with a port.
	Domain string
	Log    *slog.Logger
}

// Gateway is an http.Handler.
type Gateway struct {
	Options
	api     *client.Client
	streams agboxv1.StreamServiceClient
	mux     *http.ServeMux // the control plane
	envd    *http.ServeMux // files and processes of a sandbox
	ports   *httputil.ReverseProxy

	resuming locks // by sandbox ID; "": pauses
	writing  locks // by exec ID
	searches locks // "": for who signed a URL
	bashes   seen  // sandboxes that had a /bin/bash when it was looked for
	watchers *watchers
	history  history
	requests sync.WaitGroup

	mu     sync.Mutex
	secret []byte // never changes; nil before the first token
}

// New returns a gateway. It makes no call.
func New(o Options) *Gateway {
	g := &Gateway{
		Options: o, api: client.New(o.Conn), streams: agboxv1.NewStreamServiceClient(agboxv1.Declare(o.Conn)), mux: http.NewServeMux(), envd: http.NewServeMux(),
		watchers: newWatchers(),
	}
	g.ports = g.newProxy()
	g.routes()
	g.envdRoutes()
	return g
}

// Wait returns once no request is under way and no watcher is left. Its caller has ended the contexts of all requests, and accepts no more.
func (g *Gateway) Wait() {
	g.requests.Wait()
	g.watchers.stop()
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.requests.Add(1)
	defer g.requests.Done()
	a, ok, err := addressOf(r)
	if err == nil && !ok && isSigned(r) {
		ok = true
		a.port = envdPort
		a.id, err = g.signer(r.Context(), r)
	}
	switch {
	case err != nil:
		fail(w, err)
	case ok:
		g.traffic(w, r, a)
	default:
		g.mux.ServeHTTP(w, r)
	}
}

// owner returns the owner of the request's API key. Errors: 401.
func (g *Gateway) owner(r *http.Request) (string, error) {
	key, ok := strings.CutPrefix(r.Header.Get("X-Api-Key"), keyPrefix)
	if !ok {
		return "", failf(http.StatusUnauthorized, `the header X-API-Key has no key of this daemon; "agbox e2b keys create" makes one`)
	}
	rec, err := g.api.GatewayKey(r.Context(), key)
	if client.IsNotFound(err) {
		return "", failf(http.StatusUnauthorized, `the API key is not valid, or was revoked; "agbox e2b keys create" makes one`)
	}
	return rec.GetOwner(), err
}

// sandbox returns a sandbox of the owner. Errors: 404, also for those of others, and for those that are gone.
func (g *Gateway) sandbox(ctx context.Context, owner, id string) (*agboxv1.SandboxHandle, error) {
	sb, err := g.api.GetSandbox(ctx, id)
	if client.IsNotFound(err) || err == nil && (sb.GetSpec().GetGateway().GetOwner() != owner || isGone(sb)) {
		return nil, notFound(id)
	}
	return sb, err
}

// token returns the access token of a sandbox, the same over its whole life.
func (g *Gateway) token(ctx context.Context, id string) (string, error) {
	return g.derive(ctx, "e2b access "+id)
}

// trafficToken returns the token that requests to ports of a sandbox need, the same over its whole life; empty: they need none.
func (g *Gateway) trafficToken(ctx context.Context, sb *agboxv1.SandboxHandle) (string, error) {
	if !sb.GetSpec().GetGateway().GetPrivateTraffic() {
		return "", nil
	}
	return g.derive(ctx, "e2b traffic "+sb.GetSandboxId())
}

// derive returns a token for a label. It depends on the daemon's secret, and is stored nowhere.
func (g *Gateway) derive(ctx context.Context, label string) (string, error) {
	g.mu.Lock()
	secret := g.secret
	g.mu.Unlock()
	if secret == nil {
		var err error
		if secret, err = g.api.GatewaySecret(ctx); err != nil {
			return "", err
		}
		if len(secret) == 0 {
			return "", errors.New("the daemon has no secret for tokens")
		}
		g.mu.Lock()
		g.secret = secret
		g.mu.Unlock()
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(label)) // never returns an error
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// locks are mutexes by name.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	waiters int
	free    chan struct{} // has a value while the lock is free
}

// take locks an ID until the returned function is called. Errors: those of ctx.
func (l *locks) take(ctx context.Context, id string) (release func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	one := l.held[id]
	if one == nil {
		one = &lock{free: make(chan struct{}, 1)}
		one.free <- struct{}{}
		l.held[id] = one
	}
	one.waiters++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.waiters--; one.waiters == 0 {
			delete(l.held, id)
		}
	}
	select {
	case <-one.free:
		return func() { one.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
