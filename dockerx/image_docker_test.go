//go:build docker

package dockerx

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx/dockertest/busybox"
	"github.com/agbox/agbox/dockerx/dockertest/registry"
)

func TestPullIsSharedByAllWaiters(t *testing.T) {
	r := registry.New(t, 1000)
	busybox.Drop(t, "", r.Ref("1"))
	e, seen := newEngine(t, "")
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i == 0 { // one waiter leaves
				ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
				defer cancel()
			}
			img, err := e.EnsureImage(ctx, r.Ref("1"), PullOptions{})
			if i == 0 {
				wantClass(t, err, context.DeadlineExceeded)
			} else if err != nil || img.User != "nobody" || img.WorkingDir != "/tmp" || img.ID == "" {
				t.Errorf("got %+v, %v", img, err)
			}
		})
	}
	time.Sleep(time.Second) // the first waiter has left; no waiter gets the image before Release
	r.Release()
	wg.Wait()
	if n := r.Pulls.Load(); n != 1 {
		t.Errorf("the layer was pulled %d times", n)
	}
	pulls := 0
	ops, _ := seen.take()
	for _, op := range ops {
		if op == OpPullImage {
			pulls++
		}
	}
	if pulls != 1 {
		t.Errorf("%d pulls observed", pulls)
	}
}

func TestPullOfMissingImages(t *testing.T) {
	e := newPuller(t, "", "", 0)
	r := registry.New(t, 1000)
	r.OfferElsewhere(t, "s390x")
	for ref, want := range map[string]struct {
		class error
		says  string
	}{
		r.Ref("2"):          {errdefs.ErrNotFound, "the registry " + r.Host() + " has no such tag"},
		r.Host() + "/x/y:1": {errdefs.ErrNotFound, "the registry " + r.Host() + " has no such "}, // tag or repository: containerd does not distinguish them
		r.Ref("s390x"):      {errdefs.ErrNotFound, "not for the platform"},
		"127.0.0.1:1/x/y:1": {errdefs.ErrUnavailable, "cannot reach the registry 127.0.0.1:1"}, // no listener
	} {
		_, err := e.EnsureImage(t.Context(), ref, PullOptions{})
		wantSays(t, err, want.class, ref, want.says)
	}
}

// TestPullThatTheRegistryRefuses pulls through a real engine from registries with each known kind of refusal.
func TestPullThatTheRegistryRefuses(t *testing.T) {
	basic := func(w http.ResponseWriter) { w.Header().Set("WWW-Authenticate", `Basic realm="x"`) }
	plain := func(http.ResponseWriter) {}
	for _, tc := range []struct {
		name          string
		header        func(http.ResponseWriter)
		status        int
		code, message string
		want          error
	}{
		{"wants a password", basic, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required", errdefs.ErrPermissionDenied},
		{"refuses without a challenge", plain, http.StatusUnauthorized, "UNAUTHORIZED", "go away", errdefs.ErrPermissionDenied},
		{"denies", plain, http.StatusForbidden, "DENIED", "requested access to the resource is denied", errdefs.ErrPermissionDenied},
		{"has no such manifest", plain, http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown", errdefs.ErrNotFound},
		{"has no such repository", plain, http.StatusNotFound, "NAME_UNKNOWN", "repository name not known", errdefs.ErrNotFound},
		{"is broken", plain, http.StatusInternalServerError, "UNKNOWN", "boom", errdefs.ErrUnavailable},
		{"is busy", plain, http.StatusTooManyRequests, "TOOMANYREQUESTS", "slow down", errdefs.ErrUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				tc.header(w)
				registry.Refuse(w, tc.status, tc.code, tc.message)
			}))
			defer s.Close()
			e, _ := newEngine(t, "")
			_, err := e.EnsureImage(t.Context(), strings.TrimPrefix(s.URL, "http://")+"/x/y:1", PullOptions{})
			wantClass(t, err, tc.want)
		})
	}
}

func TestPullFromARegistryThatHangs(t *testing.T) {
	r := registry.New(t, 1000)
	busybox.Drop(t, "", r.Ref("1"))
	e := newPuller(t, "", "", time.Second)
	start := time.Now()
	_, err := e.EnsureImage(t.Context(), r.Ref("1"), PullOptions{})
	wantSays(t, err, errdefs.ErrUnavailable, "not complete within 1s", r.Host(), "docker.pull_timeout")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	r.Release()
	if _, err := e.EnsureImage(t.Context(), r.Ref("1"), PullOptions{}); err != nil {
		t.Errorf("after the registry was released: %v", err)
	}
}

func TestPullEndsWithItsLastWaiter(t *testing.T) {
	r := registry.New(t, 1000)
	busybox.Drop(t, "", r.Ref("1"))
	e, seen := newEngine(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := e.EnsureImage(ctx, r.Ref("1"), PullOptions{})
	wantClass(t, err, context.DeadlineExceeded)
	for range 100 {
		if ops, errs := seen.take(); len(ops) > 0 && ops[len(ops)-1] == OpPullImage {
			wantClass(t, errs[len(errs)-1], context.Canceled)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("the pull continues")
}

func TestAlwaysSeesAChangedTag(t *testing.T) {
	r := registry.New(t, 1000)
	r.Release()
	busybox.Drop(t, "", r.Ref("1"))
	e := newPuller(t, "", "", 0)
	user := func(always bool) string {
		t.Helper()
		img, err := e.EnsureImage(t.Context(), r.Ref("1"), PullOptions{Always: always})
		if err != nil {
			t.Fatal(err)
		}
		busybox.Drop(t, "", img.ID)
		return img.User
	}
	if got := user(true); got != "nobody" {
		t.Errorf("first: %q", got)
	}
	r.Offer(t, "1", "somebody", 1000)
	if got := user(false); got != "nobody" {
		t.Errorf("the local image: %q", got)
	}
	if got := user(true); got != "somebody" {
		t.Errorf("always: %q", got)
	}
	r.Close()
	_, err := e.EnsureImage(t.Context(), r.Ref("1"), PullOptions{Always: true})
	wantSays(t, err, errdefs.ErrUnavailable, "cannot reach the registry "+r.Host())
}

// call is one progress report to a waiter, and its time.
type call struct {
	PullProgress
	at time.Time
}

func TestPullReportsProgressToAllWaiters(t *testing.T) {
	r := registry.New(t, 24<<20, 8<<20)
	r.Rate = 10 << 20
	r.Release()
	busybox.Drop(t, "", r.Ref("1"))
	e, _ := newEngine(t, "")
	pull := func(wait time.Duration) (calls []call) {
		time.Sleep(wait)
		o := PullOptions{Progress: func(p PullProgress) { calls = append(calls, call{p, time.Now()}) }}
		if _, err := e.EnsureImage(t.Context(), r.Ref("1"), o); err != nil {
			t.Error(err)
		}
		return calls
	}
	var early, late []call
	var wg sync.WaitGroup
	wg.Go(func() { early = pull(0) })
	wg.Go(func() { late = pull(1500 * time.Millisecond) })
	wg.Wait()
	end := PullProgress{Current: r.LayerBytes(), Total: r.LayerBytes(), Done: 2, Layers: 2}
	for _, calls := range [][]call{early, late} {
		checkProgress(t, calls, end)
	}
	if t.Failed() {
		return
	}
	if early[0].PullProgress != (PullProgress{}) || late[0].Current == 0 || late[0].Current == end.Current {
		t.Errorf("first reports: %+v to the first waiter, %+v to the second", early[0], late[0])
	}
	if n := r.Pulls.Load(); n != 2 {
		t.Errorf("%d layers were fetched", n)
	}
}

func checkProgress(t *testing.T, calls []call, end PullProgress) {
	t.Helper()
	if len(calls) < 3 || calls[len(calls)-1].PullProgress != end {
		t.Errorf("reported %+v, want some, and %+v at the end", calls, end)
		return
	}
	for i := 1; i < len(calls); i++ {
		now, last := calls[i], calls[i-1]
		if now.Current < last.Current || now.Total < last.Total || now.Done < last.Done || now.Layers < last.Layers {
			t.Errorf("%+v after %+v", now, last)
		}
		if gap := now.at.Sub(last.at); i < len(calls)-1 && gap < 250*time.Millisecond {
			t.Errorf("reported again after %s", gap)
		}
	}
}

// TestPullWithCredentials pulls from a registry that requires credentials.
func TestPullWithCredentials(t *testing.T) {
	const login = "joe:hunter2"
	auths := func(login string) func(string) string {
		return func(host string) string {
			return fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte(login)))
		}
	}
	helpers := func(host string) string { return fmt.Sprintf(`{"credHelpers":{%q:"agbox-test"}}`, host) }
	for _, tc := range []struct {
		name   string
		config func(host string) string
		helper string // the script docker-credential-agbox-test
		class  error  // nil: it works
		says   []string
	}{
		{name: "auths", config: auths(login)},
		{name: "a helper", config: helpers, helper: `echo '{"Username":"joe","Secret":"hunter2"}'`},
		{name: "none", config: func(string) string { return `{}` }, class: errdefs.ErrPermissionDenied,
			says: []string{"requires credentials", `run "docker login `}},
		{name: "wrong ones", config: auths("joe:hunter22"), class: errdefs.ErrPermissionDenied,
			says: []string{"refused the credentials from ", "config.json"}},
		{name: "a helper with wrong ones", config: helpers, helper: `echo '{"Username":"eve","Secret":"hunter2"}'`,
			class: errdefs.ErrPermissionDenied, says: []string{"refused the credentials from docker-credential-agbox-test"}},
		{name: "a helper that fails", config: helpers, helper: `echo hunter2; exit 1`, class: errdefs.ErrUnavailable,
			says: []string{"docker-credential-agbox-test", "failed"}},
		{name: "a file that can't be read", config: func(string) string { return "{" }, class: errdefs.ErrPermissionDenied,
			says: []string{"they can't be read", "config.json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := registry.New(t, 1000)
			r.Login = login
			r.Release()
			busybox.Drop(t, "", r.Ref("1"))
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "docker-credential-agbox-test"), []byte("#!/bin/sh\n"+tc.helper), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			img, err := newPuller(t, "", tc.config(r.Host()), 0).EnsureImage(t.Context(), r.Ref("1"), PullOptions{})
			if tc.class != nil {
				wantSays(t, err, tc.class, append(tc.says, r.Host())...)
			} else if err != nil || img.User != "nobody" {
				t.Errorf("got %+v, %v", img, err)
			}
		})
	}
}
