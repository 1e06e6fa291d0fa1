//go:build docker

package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// liar stands between a daemon and the engine that is there, and answers in its place while it lies.
type liar struct {
	host string
	// lie answers a request, or returns false to pass it to the engine. Nil: the engine answers all.
	lie atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
}

func newLiar(t testing.TB) *liar {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener := must(net.Listen("unix", socket))(t)
	l := &liar{host: "unix://" + socket}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", engineSocket())
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "engine"})
	proxy.Transport, proxy.FlushInterval = &http.Transport{DialContext: dial}, -1
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lie := l.lie.Load(); lie == nil || !(*lie)(w, r) {
			proxy.ServeHTTP(w, r)
		}
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return l
}

func (l *liar) tell(lie func(w http.ResponseWriter, r *http.Request) bool) { l.lie.Store(&lie) }

func (l *liar) truth() { l.lie.Store(nil) }

// nothing answers lists whose path ends so as if there were nothing.
func nothing(suffixes ...string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		for _, s := range suffixes {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, s) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, "[]")
				return true
			}
		}
		return false
	}
}

// hiding is nothing for lists of containers, and knows none of them by ID or name.
func hiding(w http.ResponseWriter, r *http.Request) bool {
	if nothing("/containers/json")(w, r) {
		return true
	}
	if strings.HasSuffix(r.URL.Path, "/json") && strings.Contains(r.URL.Path, "/containers/") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"message":"No such container"}`)
		return true
	}
	return false
}
