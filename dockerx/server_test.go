package dockerx

import (
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// fakeServer is a scripted HTTP API of an engine on a Unix socket.
type fakeServer struct {
	*httptest.Server
	host  string
	conns atomic.Int64 // that were ever made

	mu      sync.Mutex
	version string // the newest API that it speaks
	oldest  string
	handle  http.HandlerFunc
	paths   []string
}

// newServer returns a server for API 1.41 that answers everything except /_ping with handle.
func newServer(t *testing.T, handle http.HandlerFunc) *fakeServer {
	t.Helper()
	return newServerAt(t, filepath.Join(t.TempDir(), "s"), handle)
}

func newServerAt(t *testing.T, path string, handle http.HandlerFunc) *fakeServer {
	t.Helper()
	s := &fakeServer{version: "1.41", oldest: "1.12", handle: handle}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	s.host = s.listen(t, path)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *fakeServer) listen(t *testing.T, path string) string {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s.Listener.Close()
	s.Listener = l
	return "unix://" + path
}

// become changes the API versions that the server supports.
func (s *fakeServer) become(oldest, newest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest, s.version = oldest, newest
}

func (s *fakeServer) lastPath() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paths[len(s.paths)-1]
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	version, oldest := s.version, s.oldest
	s.paths = append(s.paths, r.URL.Path)
	s.mu.Unlock()
	w.Header().Set("Api-Version", version)
	if r.URL.Path == "/_ping" {
		return
	}
	asked, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v"), "/")
	if asked > version || asked < oldest { // fine for versions of the same length
		answer(w, http.StatusBadRequest, map[string]string{"message": "client version " + asked + " is not supported"})
		return
	}
	s.handle(w, r)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// answerInspect answers with some parts of a container; the others are there, and empty.
func answerInspect(w http.ResponseWriter, parts map[string]any) {
	all := map[string]any{"State": map[string]any{}, "HostConfig": map[string]any{}, "Config": map[string]any{}, "NetworkSettings": map[string]any{}}
	maps.Copy(all, parts)
	answer(w, http.StatusOK, all)
}

// newEngine returns an Engine for host whose observations are collected.
func newEngine(t *testing.T, host string) (*Engine, *observations) {
	t.Helper()
	o := &observations{}
	e, err := New(Options{Host: host, Observe: o.observe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, o
}
