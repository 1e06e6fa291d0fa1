package dockerx

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestEnsureImageTellsWhatTryingAgainMends(t *testing.T) {
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
		{"the words elsewhere", "x/y:1", http.StatusServiceUnavailable, `{"message":"denied: later"}`, errdefs.ErrUnavailable},
		{"too many requests", "x/y:1", http.StatusTooManyRequests, `{"message":"toomanyrequests"}`, errdefs.ErrUnavailable},
		{"broken off", "x/y:1", http.StatusOK, `{"status":"Pulling"}{"errorDetail":{"message":"unexpected EOF"},"error":"unexpected EOF"}`, errdefs.ErrUnavailable},
		{"an answer that stops", "x/y:1", http.StatusOK, `{"status":"Pul`, errdefs.ErrUnavailable},
		{"an ID can't be pulled", "sha256:" + strings.Repeat("a", 64), 0, "", errdefs.ErrNotFound},
		{"not a reference", "Not A Reference", 0, "", errdefs.ErrInvalidArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					answer(w, http.StatusNotFound, map[string]string{"message": "no such image"})
					return
				}
				if tc.status == 0 {
					t.Error("a pull was tried")
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			})
			e, _ := newEngine(t, s.host)
			_, err := e.EnsureImage(t.Context(), tc.ref, PullOptions{})
			wantClass(t, err, tc.want)
		})
	}
}
