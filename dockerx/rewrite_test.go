package dockerx

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	v1 "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// An engine with containerd's image store shows the manifest of an image in its archive alone, which may break off anywhere.
func TestRewrittenImageInContainerd(t *testing.T) {
	const layers = `{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageManifest + `","config":{"digest":"sha256:00","size":1},
		"layers":[{"mediaType":"` + ocispec.MediaTypeImageLayerGzip + `","digest":"sha256:11","size":123}]}`
	id := digest.FromString(layers)
	whole, err := archived(file{"blobs/sha256/00", bytes.Repeat([]byte("x"), 10_000)}, file{blob(id), []byte(layers)}, file{"index.json", []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	index, err := archived(file{blob(id), []byte(`{"schemaVersion":2,"manifests":[]}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name    string
		archive []byte
		class   func(error) bool
	}{
		{"whole", whole.Bytes(), nil},
		{"cut off before the manifest", whole.Bytes()[:5000], errdefs.IsUnavailable},
		{"cut off in the manifest", whole.Bytes()[:512+10_240+512+100], errdefs.IsUnavailable},
		{"without it", index.Bytes()[:0], errdefs.IsInternal},
		{"of several platforms", index.Bytes(), errdefs.IsInvalidArgument},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []byte
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/get"):
					_, _ = w.Write(row.archive)
				case strings.HasSuffix(r.URL.Path, "/images/load"):
					got, _ = io.ReadAll(r.Body)
				case strings.HasSuffix(r.URL.Path, "/info"):
					answer(w, http.StatusOK, system.Info{Driver: "overlayfs", DriverStatus: [][2]string{{"driver-type", "io.containerd.snapshotter.v1"}}})
				default:
					answer(w, http.StatusOK, image.InspectResponse{
						ID: id.String(), RootFS: image.RootFS{Layers: []string{"sha256:22"}},
						Config: &v1.DockerOCIImageConfig{ImageConfig: ocispec.ImageConfig{User: "app"}},
					})
				}
			})
			e, _ := newEngine(t, s.host)
			_, err := e.RewriteImage(t.Context(), id.String(), id.String(), "agbox/x", map[string]string{"a": "b"})
			if row.class != nil {
				if !row.class(err) || len(got) > 0 {
					t.Errorf("%v, and %d bytes are loaded", err, len(got))
				}
				return
			}
			for _, want := range []string{`"digest":"sha256:11","size":123`, `docker.io/agbox/x:latest`, `"a":"b"`, `"User":"app"`, `sha256:22`} {
				if !bytes.Contains(got, []byte(want)) {
					t.Errorf("%s is not in the archive", want)
				}
			}
			if err != nil || bytes.Contains(got, []byte(`"sha256:00"`)) {
				t.Errorf("%v, or the former configuration is named in the archive", err)
			}
		})
	}
}
