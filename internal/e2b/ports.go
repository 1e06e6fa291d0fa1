package e2b

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// dialTimeout bounds the connection to a port of a sandbox.
const dialTimeout = 30 * time.Second

// privateHeaders are those that no program in a sandbox gets to see.
var privateHeaders = []string{"E2b-Sandbox-Id", "E2b-Sandbox-Port", "X-Access-Token", "X-Api-Key", trafficHeader}

// trafficHeader carries the token for ports of a sandbox whose traffic is private.
const trafficHeader = "E2b-Traffic-Access-Token"

type addressKey struct{}

// newProxy returns the reverse proxy to ports of sandboxes. Each request has a connection of its own, dialled by the ID of the sandbox: an address
// that is used again by another sandbox can't be met. WebSockets and other upgrades pass through.
func (g *Gateway) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", p.In.Host
			p.Out.Host = p.In.Host
			for _, name := range privateHeaders {
				p.Out.Header.Del(name)
			}
			p.SetXForwarded()
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				a, ok := ctx.Value(addressKey{}).(address)
				if !ok {
					return nil, errors.New("no sandbox is meant")
				}
				ctx, cancel := context.WithTimeout(ctx, dialTimeout)
				defer cancel()
				return g.api.DialSandbox(ctx, a.id, "tcp", ":"+strconv.Itoa(a.port))
			},
			DisableKeepAlives: true, DisableCompression: true, // and no proxy of the environment
		},
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			a, _ := r.Context().Value(addressKey{}).(address)
			unreachable(w, a.id, err.Error())
		},
	}
}

// servePort passes a request to a port of a sandbox, once that runs. One without the token that the sandbox needs does not resume it.
func (g *Gateway) servePort(w http.ResponseWriter, r *http.Request, a address, sb *agboxv1.SandboxHandle) {
	token, err := g.trafficToken(r.Context(), sb)
	if err != nil {
		unreachable(w, a.id, err.Error())
		return
	}
	if token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get(trafficHeader)), []byte(token)) != 1 {
		answer(w, http.StatusForbidden, map[string]any{
			"sandboxId": a.id, "code": http.StatusForbidden,
			"message": "the traffic of the sandbox is private: the header e2b-traffic-access-token must have its trafficAccessToken",
		})
		return
	}
	if err := g.wake(r.Context(), sb); err != nil {
		unreachable(w, a.id, err.Error())
		return
	}
	if r.ProtoMajor == 1 {
		defer fullDuplex(w, r)()
	}
	g.ports.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), addressKey{}, a)))
}
