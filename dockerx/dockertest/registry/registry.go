// Package registry serves images to an engine on this host, for tests of pulls.
package registry

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Registry is an image registry on 127.0.0.1, which an engine on this host accesses by plain HTTP. The fields that are not functions
// are set before the first pull.
type Registry struct {
	*httptest.Server
	Login   string       // the required "user:password", if any
	Rate    int          // of each layer, in bytes per second; 0: unlimited
	Pulls   atomic.Int64 // of layers
	Release func()       // starts serving layers; may be called more than once

	repo   string          // the only repository
	images http.Handler    // without login, hold and rate
	held   <-chan struct{} // closed by Release
	mu     sync.Mutex      // guards layers
	layers map[string]int64
}

// New returns a Registry with an image with the tag 1 and layers of these sizes.
func New(t testing.TB, layers ...int) *Registry {
	t.Helper()
	held := make(chan struct{})
	r := &Registry{
		repo: "x/" + strings.ToLower(rand.Text()), held: held, Release: sync.OnceFunc(func() { close(held) }),
		images: registry.New(registry.Logger(log.New(io.Discard, "", 0))), layers: map[string]int64{},
	}
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.Release() // 20.10 keeps the connection of a cancelled pull
		r.Close()
	})
	r.Offer(t, "1", "nobody", layers...)
	return r
}

// Offer adds an image with this tag, whose containers run as user. No other image has its layers.
func (r *Registry) Offer(t testing.TB, tag, user string, sizes ...int) {
	t.Helper()
	var layers []v1.Layer
	for _, size := range sizes {
		layer, err := random.Layer(int64(size), types.DockerLayer)
		must(t, err)
		layers = append(layers, layer)
	}
	r.offer(t, tag, user, layers)
}

// OfferLayers is Offer with these tar archives as layers.
func (r *Registry) OfferLayers(t testing.TB, tag, user string, archives ...[]byte) {
	t.Helper()
	var layers []v1.Layer
	for _, content := range archives {
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
		layer, err := tarball.LayerFromOpener(open, tarball.WithCompressionLevel(gzip.NoCompression))
		must(t, err)
		layers = append(layers, layer)
	}
	r.offer(t, tag, user, layers)
}

func (r *Registry) offer(t testing.TB, tag, user string, layers []v1.Layer) {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	must(t, err)
	config, err := img.ConfigFile()
	must(t, err)
	config.Architecture, config.OS = "amd64", "linux"
	config.Config = v1.Config{User: user, WorkingDir: "/tmp", Env: []string{"A=b"}, Cmd: []string{"sh"}}
	img, err = mutate.ConfigFile(img, config)
	must(t, err)
	must(t, remote.Write(r.reference(t, tag), img, remote.WithTransport(direct{r.images})))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, layer := range layers {
		digest, err := layer.Digest()
		must(t, err)
		r.layers[digest.String()], err = layer.Size()
		must(t, err)
	}
}

// OfferElsewhere adds an image list with this tag that has images for another platform only.
func (r *Registry) OfferElsewhere(t testing.TB, tag string) {
	t.Helper()
	other := mutate.IndexAddendum{Add: empty.Image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}}
	list := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.DockerManifestList), other)
	must(t, remote.WriteIndex(r.reference(t, tag), list, remote.WithTransport(direct{r.images})))
}

func (r *Registry) reference(t testing.TB, tag string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(r.Ref(tag), name.Insecure)
	must(t, err)
	return ref
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// direct calls a handler without a connection.
type direct struct{ http.Handler }

func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		req.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, req)
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

// LayerBytes is how much has to come for all images, compressed.
func (r *Registry) LayerBytes() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, size := range r.layers {
		n += size
	}
	return n
}

func (r *Registry) isLayer(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.layers[path[strings.LastIndexByte(path, '/')+1:]] > 0
}

// Refuse answers as registries do.
func Refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]string{"code": code, "message": message}}})
}

// ServeHTTP answers an engine. It holds layers until Release, and sends them at Rate.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if user, password, _ := req.BasicAuth(); r.Login != "" && user+":"+password != r.Login {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		Refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "incorrect username or password "+req.Header.Get("Authorization"))
		return
	}
	if req.Method == http.MethodGet && r.isLayer(req.URL.Path) {
		r.Pulls.Add(1)
		select {
		case <-r.held:
		case <-req.Context().Done():
			return
		}
		w = throttled{w, r.Rate}
	}
	req.Header.Del("Range") // it may be ignored; r.images refuses one without an end, with which containerd resumes a pull
	r.images.ServeHTTP(w, req)
}

// throttled is a ResponseWriter of at most rate bytes per second; 0: unlimited.
type throttled struct {
	http.ResponseWriter
	rate int
}

func (t throttled) Write(b []byte) (n int, err error) {
	const piece = 256 << 10 // of what is one write to the registry
	for n < len(b) && err == nil {
		var m int
		m, err = t.ResponseWriter.Write(b[n:min(n+piece, len(b))])
		n += m
		if t.rate > 0 {
			time.Sleep(time.Duration(m) * time.Second / time.Duration(t.rate)) // the rate is what is asked for
		}
	}
	return n, err
}

// Host is the prefix of the references of its images.
func (r *Registry) Host() string { return strings.TrimPrefix(r.URL, "http://") }

// Ref is the reference of the image with a tag.
func (r *Registry) Ref(tag string) string { return r.Host() + "/" + r.repo + ":" + tag }
