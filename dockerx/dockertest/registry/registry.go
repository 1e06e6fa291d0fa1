// Package registry serves images to an engine on this host, for tests of pulls.
package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
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
)

const (
	mediaTypes   = "application/vnd.docker."
	manifestType = mediaTypes + "distribution.manifest.v2+json"
)

// Registry is a read-only image registry on 127.0.0.1, which an engine on this host accesses by plain HTTP. Images are
// offered before they are pulled. The fields that are not functions are set before the first pull.
type Registry struct {
	*httptest.Server
	Login   string       // the required "user:password", if any
	Rate    int          // of each layer, in bytes per second; 0: unlimited
	Pulls   atomic.Int64 // of layers
	Release func()       // starts serving layers; may be called more than once

	repo     string          // the only repository
	held     <-chan struct{} // closed by Release
	requests sync.Mutex      // guards tags and blobs
	tags     map[string]string
	blobs    map[string]blob // by digest; manifests too
}

type blob struct {
	content   []byte
	mediaType string
}

// New returns a Registry with an image with the tag 1 and layers of these sizes.
func New(t testing.TB, layers ...int) *Registry {
	t.Helper()
	held := make(chan struct{})
	r := &Registry{
		repo: "x/" + strings.ToLower(rand.Text()), held: held, Release: sync.OnceFunc(func() { close(held) }),
		tags: map[string]string{}, blobs: map[string]blob{},
	}
	r.Offer(t, "1", "nobody", layers...)
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.Release() // 20.10 keeps the connection of a cancelled pull
		r.Close()
	})
	return r
}

// Offer adds an image with this tag, whose containers run as user. No other image has its layers.
func (r *Registry) Offer(t testing.TB, tag, user string, layers ...int) {
	t.Helper()
	var archives [][]byte
	for _, size := range layers {
		archives = append(archives, randomLayer(t, size))
	}
	r.OfferLayers(t, tag, user, archives...)
}

// OfferLayers is Offer with these tar archives as layers.
func (r *Registry) OfferLayers(t testing.TB, tag, user string, archives ...[]byte) {
	t.Helper()
	var described, diffIDs []any
	for _, content := range archives {
		var packed bytes.Buffer
		z, err := gzip.NewWriterLevel(&packed, gzip.NoCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write(content); err != nil || z.Close() != nil {
			t.Fatal("gzip")
		}
		diffIDs = append(diffIDs, digest(content))
		described = append(described, r.add(mediaTypes+"image.rootfs.diff.tar.gzip", packed.Bytes()))
	}
	config := r.addJSON(t, mediaTypes+"container.image.v1+json", map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"User": user, "WorkingDir": "/tmp", "Env": []string{"A=b"}, "Cmd": []string{"sh"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	})
	r.tag(tag, r.addJSON(t, manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": described,
	}))
}

// OfferElsewhere adds an image list with this tag that has images for another platform only.
func (r *Registry) OfferElsewhere(t testing.TB, tag string) {
	t.Helper()
	other := r.addJSON(t, manifestType, map[string]any{"schemaVersion": 2, "mediaType": manifestType})
	other["platform"] = map[string]string{"os": "linux", "architecture": "s390x"}
	list := mediaTypes + "distribution.manifest.list.v2+json"
	r.tag(tag, r.addJSON(t, list, map[string]any{"schemaVersion": 2, "mediaType": list, "manifests": []any{other}}))
}

// randomLayer is a tar archive with one file of size bytes of random bytes, which don't compress.
func randomLayer(t testing.TB, size int) []byte {
	t.Helper()
	content := make([]byte, size)
	_, _ = rand.Read(content) // never fails
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: "file", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(size)}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil || w.Close() != nil {
		t.Fatal("tar")
	}
	return buf.Bytes()
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// add keeps a blob and returns its descriptor.
func (r *Registry) add(mediaType string, b []byte) map[string]any {
	r.requests.Lock()
	defer r.requests.Unlock()
	r.blobs[digest(b)] = blob{b, mediaType}
	return map[string]any{"mediaType": mediaType, "digest": digest(b), "size": len(b)}
}

func (r *Registry) addJSON(t testing.TB, mediaType string, v any) map[string]any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return r.add(mediaType, b)
}

func (r *Registry) tag(tag string, descriptor map[string]any) {
	r.requests.Lock()
	defer r.requests.Unlock()
	r.tags[tag] = descriptor["digest"].(string)
}

// LayerBytes is the number of bytes to download for all images, compressed.
func (r *Registry) LayerBytes() (n int64) {
	r.requests.Lock()
	defer r.requests.Unlock()
	for _, b := range r.blobs {
		if strings.HasSuffix(b.mediaType, "gzip") {
			n += int64(len(b.content))
		}
	}
	return n
}

// find returns the blob with a tag or digest.
func (r *Registry) find(name string) (blob, bool) {
	r.requests.Lock()
	defer r.requests.Unlock()
	if digest, ok := r.tags[name]; ok {
		name = digest
	}
	b, ok := r.blobs[name]
	return b, ok
}

// Refuse sends an error as registries do.
func Refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]string{"code": code, "message": message}}})
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if user, password, _ := req.BasicAuth(); r.Login != "" && user+":"+password != r.Login {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		Refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "incorrect username or password "+req.Header.Get("Authorization"))
		return
	}
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	if path == "" {
		return
	}
	if !strings.HasPrefix(path, r.repo+"/") {
		Refuse(w, http.StatusNotFound, "NAME_UNKNOWN", "repository name not known to registry")
		return
	}
	b, ok := r.find(path[strings.LastIndexByte(path, '/')+1:])
	if !ok {
		Refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown")
		return
	}
	w.Header().Set("Content-Type", b.mediaType)
	w.Header().Set("Docker-Content-Digest", digest(b.content))
	w.Header().Set("Content-Length", fmt.Sprint(len(b.content)))
	if req.Method == http.MethodGet {
		r.send(w, req, b)
	}
}

// send holds layers until Release, and sends them at Rate.
func (r *Registry) send(w http.ResponseWriter, req *http.Request, b blob) {
	if !strings.HasSuffix(b.mediaType, "gzip") {
		_, _ = w.Write(b.content)
		return
	}
	r.Pulls.Add(1)
	select {
	case <-r.held:
	case <-req.Context().Done():
		return
	}
	const piece = 256 << 10
	for rest := b.content; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
		if _, err := w.Write(rest[:min(piece, len(rest))]); err != nil {
			return
		}
		if r.Rate > 0 {
			time.Sleep(piece * time.Second / time.Duration(r.Rate))
		}
	}
}

// Host is the prefix of the references of its images.
func (r *Registry) Host() string { return strings.TrimPrefix(r.URL, "http://") }

// Ref is the reference of the image with a tag.
func (r *Registry) Ref(tag string) string { return r.Host() + "/" + r.repo + ":" + tag }

// DropImage removes an image when the test ends.
func DropImage(t testing.TB, ref string) {
	t.Helper()
	t.Cleanup(func() {
		c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		if _, err := c.ImageRemove(context.Background(), ref, image.RemoveOptions{Force: true}); err != nil && !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	})
}
