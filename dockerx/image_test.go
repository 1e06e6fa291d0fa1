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
			_, err := e.EnsureImage(t.Context(), tc.ref)
			wantClass(t, err, tc.want)
		})
	}
}
