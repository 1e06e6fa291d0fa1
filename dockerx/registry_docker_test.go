//go:build docker

package dockerx

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/agbox/agbox/dockerx/dockertest/busybox"
)

const mediaTypes = "application/vnd.docker."

// registry is a read-only image registry on 127.0.0.1, which an engine on this host talks plain HTTP to.
type registry struct {
	*httptest.Server
	repo     string
	blobs    map[string][]byte // by digest; manifests too
	manifest string            // digest of the one that has the tag 1
	pulls    atomic.Int64      // of the layer
	layer    string
	release  func()
	held     <-chan struct{} // closed by release: the layer is served
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	held := make(chan struct{})
	r := &registry{repo: uniqueName(), blobs: map[string][]byte{}, held: held, release: sync.OnceFunc(func() { close(held) })}
	root := busybox.Root(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(root); err != nil || z.Close() != nil {
		t.Fatal("gzip")
	}
	r.layer = r.add(packed.Bytes())
	config := r.addJSON(t, map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"User": "nobody", "WorkingDir": "/tmp", "Env": []string{"A=b"}, "Cmd": []string{"sh"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(root)}},
		// Different for each test, so that each has an image of its own to remove.
		"author": r.repo,
	})
	r.manifest = r.addJSON(t, map[string]any{
		"schemaVersion": 2, "mediaType": mediaTypes + "distribution.manifest.v2+json",
		"config": r.descriptor("container.image.v1+json", config),
		"layers": []any{r.descriptor("image.rootfs.diff.tar.gzip", r.layer)},
	})
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.release() // 20.10 keeps the connection of a pull that was given up
		r.Close()
	})
	return r
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (r *registry) add(b []byte) string {
	r.blobs[digest(b)] = b
	return digest(b)
}

func (r *registry) addJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return r.add(b)
}

func (r *registry) descriptor(mediaType, digest string) map[string]any {
	return map[string]any{"mediaType": mediaTypes + mediaType, "digest": digest, "size": len(r.blobs[digest])}
}

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	if name == "" { // /v2/
		return
	}
	if name == "1" {
		name = r.manifest
	}
	blob, ok := r.blobs[name]
	if !ok {
		answer(w, http.StatusNotFound, map[string]any{"errors": []any{map[string]string{"code": "MANIFEST_UNKNOWN", "message": "no"}}})
		return
	}
	if name == r.layer && req.Method == http.MethodGet {
		r.pulls.Add(1)
		select {
		case <-r.held:
		case <-req.Context().Done():
			return
		}
	}
	if name == r.manifest {
		w.Header().Set("Content-Type", mediaTypes+"distribution.manifest.v2+json")
	}
	w.Header().Set("Docker-Content-Digest", name)
	w.Header().Set("Content-Length", fmt.Sprint(len(blob)))
	if req.Method == http.MethodGet {
		_, _ = w.Write(blob)
	}
}

func (r *registry) ref(tag string) string {
	return strings.TrimPrefix(r.URL, "http://") + "/" + r.repo + ":" + tag
}

// dropImage removes an image when the test ends.
func dropImage(t *testing.T, ref string) {
	t.Cleanup(func() {
		c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if _, err := c.ImageRemove(context.Background(), ref, image.RemoveOptions{Force: true}); err != nil && !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func TestPullIsSharedByAllWhoWait(t *testing.T) {
	r := newRegistry(t)
	dropImage(t, r.ref("1"))
	e, seen := newEngine(t, "")
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i == 0 { // one leaves
				ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
				defer cancel()
			}
			img, err := e.EnsureImage(ctx, r.ref("1"), PullOptions{})
			if i == 0 {
				wantClass(t, err, context.DeadlineExceeded)
			} else if err != nil || img.User != "nobody" || img.WorkingDir != "/tmp" || img.ID == "" {
				t.Errorf("got %+v, %v", img, err)
			}
		})
	}
	time.Sleep(time.Second) // the one that leaves has left; nobody gets the image before this
	r.release()
	wg.Wait()
	if n := r.pulls.Load(); n != 1 {
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

func TestPullOfWhatIsNotThere(t *testing.T) {
	e, _ := newEngine(t, "")
	_, err := e.EnsureImage(t.Context(), newRegistry(t).ref("2"), PullOptions{})
	wantClass(t, err, errdefs.ErrNotFound)
	_, err = e.EnsureImage(t.Context(), "127.0.0.1:1/x/y:1", PullOptions{}) // nobody listens
	wantClass(t, err, errdefs.ErrUnavailable)
}

// TestPullThatTheRegistryRefuses asks a real engine about registries that answer in the ways that there are.
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
				answer(w, tc.status, map[string]any{"errors": []any{map[string]string{"code": tc.code, "message": tc.message}}})
			}))
			defer s.Close()
			e, _ := newEngine(t, "")
			_, err := e.EnsureImage(t.Context(), strings.TrimPrefix(s.URL, "http://")+"/x/y:1", PullOptions{})
			wantClass(t, err, tc.want)
		})
	}
}

func TestPullFromARegistryThatHangs(t *testing.T) {
	r := newRegistry(t)
	dropImage(t, r.ref("1"))
	e, err := New(Options{PullTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	start := time.Now()
	_, err = e.EnsureImage(t.Context(), r.ref("1"), PullOptions{})
	wantClass(t, err, errdefs.ErrUnavailable)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	r.release()
	if _, err := e.EnsureImage(t.Context(), r.ref("1"), PullOptions{}); err != nil {
		t.Errorf("after the registry came back: %v", err)
	}
}

func TestPullEndsWithItsLastWaiter(t *testing.T) {
	r := newRegistry(t)
	dropImage(t, r.ref("1"))
	e, seen := newEngine(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := e.EnsureImage(ctx, r.ref("1"), PullOptions{})
	wantClass(t, err, context.DeadlineExceeded)
	for range 100 {
		if ops, errs := seen.take(); len(ops) > 0 && ops[len(ops)-1] == OpPullImage {
			wantClass(t, errs[len(errs)-1], context.Canceled)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("the pull goes on")
}
