package dockerx

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	sdk "github.com/docker/docker/api/types/registry"
)

// pullServer is an engine without images that answers each pull with status and body; status 0 forbids pulls.
func pullServer(t *testing.T, status int, body string) *fakeServer {
	t.Helper()
	return newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			answer(w, http.StatusNotFound, map[string]string{"message": "no such image"})
			return
		}
		if status == 0 {
			t.Error("a pull was tried")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
}

// newPuller returns an Engine with this config.json for its credentials; "" for none.
func newPuller(t *testing.T, host, config string, timeout time.Duration) *Engine {
	t.Helper()
	dir := t.TempDir()
	if config != "" {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, err := New(Options{Host: host, CredentialsDir: dir, PullTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// wantSays checks the class of an error, and that its text has the words and no secret.
func wantSays(t *testing.T, err, class error, words ...string) {
	t.Helper()
	wantClass(t, err, class)
	if err == nil {
		return
	}
	t.Log(err)
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%q contains a secret", err)
	}
}

func TestEnsureImageClassifiesPermanentErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		ref    string
		status int
		body   string
		want   error
	}{
		{"the registry has none", "x/y:1", http.StatusNotFound, `{"message":"manifest unknown"}`, errdefs.ErrNotFound},
		{"access denied", "x/y:1", http.StatusForbidden, `{"message":"denied"}`, errdefs.ErrPermissionDenied},
		{"credentials wanted", "x/y:1", http.StatusUnauthorized, `{"message":"unauthorized"}`, errdefs.ErrPermissionDenied},
		{"the registry is down", "x/y:1", http.StatusInternalServerError, `{"message":"connection refused"}`, errdefs.ErrUnavailable},
		{"credentials wanted, 20.10", "x/y:1", 500, `{"message":"Head \"http://r/v2/x/y/manifests/1\": no basic auth credentials"}`, errdefs.ErrPermissionDenied},
		{"credentials refused, 20.10", "x/y:1", 500, `{"message":"Head \"http://r/v2/x/y/manifests/1\": unauthorized: incorrect username or password"}`, errdefs.ErrPermissionDenied},
		{"credentials wanted in short, 20.10", "x/y:1", 500, `{"message":"unauthorized"}`, errdefs.ErrPermissionDenied},
		{"access denied, 20.10", "x/y:1", 500, `{"message":"denied: requested access to the resource is denied"}`, errdefs.ErrPermissionDenied},
		{"no such manifest, 20.10", "x/y:1", 500, `{"message":"manifest unknown"}`, errdefs.ErrNotFound},
		{"no such artifact, 20.10", "x/y:1", 500, `{"message":"unknown: artifact x/y:1 not found"}`, errdefs.ErrNotFound},
		{"another denied", "x/y:1", 500, `{"message":"dial unix /run/proxy: connect: permission denied"}`, errdefs.ErrUnavailable},
		{"another not found", "x/y:1", 500, `{"message":"proxyconnect tcp: host not found"}`, errdefs.ErrUnavailable},
		{"a code under another status", "x/y:1", http.StatusServiceUnavailable, `{"message":"denied: later"}`, errdefs.ErrUnavailable},
		{"too many requests", "x/y:1", http.StatusTooManyRequests, `{"message":"toomanyrequests"}`, errdefs.ErrUnavailable},
		{"not for this platform", "x/y:1", http.StatusOK, `{"status":"Pulling from x/y","id":"1"}{"errorDetail":{"message":"no matching manifest for linux/amd64 in the manifest list entries"}}`, errdefs.ErrNotFound},
		{"denied after the first layer", "x/y:1", http.StatusOK, `{"status":"Pulling fs layer","id":"a"}{"errorDetail":{"message":"denied: later"}}`, errdefs.ErrUnavailable},
		{"interrupted", "x/y:1", http.StatusOK, `{"status":"Pulling"}{"errorDetail":{"message":"unexpected EOF"},"error":"unexpected EOF"}`, errdefs.ErrUnavailable},
		{"an answer that stops", "x/y:1", http.StatusOK, `{"status":"Pul`, errdefs.ErrUnavailable},
		{"an ID can't be pulled", "sha256:" + strings.Repeat("a", 64), 0, "", errdefs.ErrNotFound},
		{"not a reference", "Not A Reference", 0, "", errdefs.ErrInvalidArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newPuller(t, pullServer(t, tc.status, tc.body).host, "", 0)
			_, err := e.EnsureImage(t.Context(), tc.ref, PullOptions{})
			wantClass(t, err, tc.want)
		})
	}
}

const joesConfig = `{"auths":{"r.example":{"username":"joe","password":"hunter2"}}}`

func TestPullErrorsNameCauseAndRemedy(t *testing.T) {
	for _, tc := range []struct {
		name, config string
		status       int
		message      string
		class        error
		says         []string
	}{
		{"tag", "", 404, "manifest for r.example/x:1 not found: manifest unknown: manifest unknown", errdefs.ErrNotFound,
			[]string{"pull image r.example/x:1: the registry r.example has no such tag"}},
		{"name", "", 404, "name unknown: repository name not known to registry", errdefs.ErrNotFound, []string{"no such repository: check the name"}},
		{"name or credentials", "", 404, "pull access denied for r.example/x, repository does not exist or may require 'docker login': denied: no", errdefs.ErrNotFound,
			[]string{"no such repository or denies access:", `"docker login r.example"`}},
		{"no credentials", "", 500, "no basic auth credentials", errdefs.ErrPermissionDenied,
			[]string{"requires credentials", `run "docker login r.example" as the user of agboxd`}},
		{"wrong credentials", joesConfig, 500, "unauthorized: bad password hunter2", errdefs.ErrPermissionDenied,
			[]string{"refused the credentials from ", "config.json", `"docker login r.example"`, "bad password [secret]"}},
		{"credentials without access", joesConfig, 500, "denied: not for joe", errdefs.ErrPermissionDenied,
			[]string{"with the credentials from ", "config.json"}},
		{"network", "", 500, `Get "https://r.example/v2/": dial tcp: lookup r.example: no such host`, errdefs.ErrUnavailable,
			[]string{"cannot reach the registry r.example", "no such host"}},
		{"too many", "", 500, "toomanyrequests: slow down", errdefs.ErrUnavailable, []string{"limits the rate of requests"}},
		{"anything else", "", 500, "write /x: no space left on device", errdefs.ErrUnavailable, []string{"was interrupted", "no space left"}},
		{"unreadable credentials", `{"auths":hunter2`, 500, "no basic auth credentials", errdefs.ErrPermissionDenied,
			[]string{"they can't be read", "config.json", `"docker login"`}},
		{"unreadable credentials, hidden image", `{"auths":hunter2`, 404, "name unknown: no", errdefs.ErrPermissionDenied, []string{"config.json"}},
		{"unreadable credentials, network", `{"auths":hunter2`, 500, "dial tcp: no such host", errdefs.ErrUnavailable, []string{"cannot reach"}},
		{"no such helper", `{"credsStore":"no-such-program"}`, 500, "no basic auth credentials", errdefs.ErrPermissionDenied,
			[]string{"docker-credential-no-such-program", "r.example"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := pullServer(t, tc.status, fmt.Sprintf(`{"message":%q}`, tc.message))
			_, err := newPuller(t, s.host, tc.config, 0).EnsureImage(t.Context(), "r.example/x:1", PullOptions{})
			wantSays(t, err, tc.class, tc.says...)
		})
	}
}

func TestUnreadableCredentialsDoNotBlockPublicImages(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			answer(w, http.StatusOK, map[string]string{"Id": "sha256:1"})
		}
	})
	if _, err := newPuller(t, s.host, `{"auths":`, 0).EnsureImage(t.Context(), "x/y:1", PullOptions{Always: true}); err != nil {
		t.Error(err)
	}
}

func TestHangingPullReturnsTheTimeout(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-r.Context().Done()
		}
		answer(w, http.StatusNotFound, map[string]string{"message": "no such image"})
	})
	_, err := newPuller(t, s.host, "", 50*time.Millisecond).EnsureImage(t.Context(), "r.example/x:1", PullOptions{})
	wantSays(t, err, errdefs.ErrUnavailable, "not complete within 50ms", "the registry r.example or the engine is slow or hangs", "docker.pull_timeout")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := newPuller(t, s.host, "", 0).EnsureImage(ctx, "r.example/x:1", PullOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's deadline: %v", err)
	}
}

func TestCredentialsAreSentToTheEngine(t *testing.T) {
	var got *sdk.AuthConfig
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			var err error
			if got, err = sdk.DecodeAuthConfig(r.Header.Get(sdk.AuthHeader)); err != nil {
				t.Error(err)
			}
			return
		}
		answer(w, http.StatusOK, map[string]string{"Id": "sha256:1"})
	})
	e := newPuller(t, s.host, joesConfig, 0)
	for ref, want := range map[string]string{"r.example/x:1": "hunter2", "other.example/x:1": "", "x": ""} {
		if _, err := e.EnsureImage(t.Context(), ref, PullOptions{Always: true}); err != nil || got.Password != want {
			t.Errorf("%s: sent %q, %v; want %q", ref, got.Password, err, want)
		}
	}
}
