package dockerx

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// RewriteImage makes an image named ref that has the layers of one local image and the configuration of another, with labels added to that
// configuration. All are references or IDs. The new image has no parent, shares the layers, and outlives both. Repeated with the same
// arguments, it makes the same image with the same ID. Another image of that name loses the name.
//
// With containerd's image store the engine shows the compressed layers only as part of the whole image, which is read for that: half
// the time of its commit, or less.
//
// Errors: ErrNotFound, one of the two does not exist; ErrInvalidArgument; ErrInternal, also from an engine that wants layers
// again that it has; ErrUnavailable.
func (e *Engine) RewriteImage(ctx context.Context, layersOf, configOf, ref string, labels map[string]string) (Image, error) {
	return ask(ctx, e, OpRewriteImage, "make image "+ref, func(ctx context.Context, c *client.Client) (Image, error) {
		layers, err := c.ImageInspect(ctx, layersOf)
		if err != nil {
			return Image{}, err
		}
		config, err := c.ImageInspect(ctx, configOf)
		if err != nil {
			return Image{}, err
		}
		info, err := c.Info(ctx)
		if err != nil {
			return Image{}, err
		}
		text, err := rewritten(&layers, &config, labels)
		if err != nil {
			return Image{}, err
		}
		var archive *bytes.Buffer
		if inContainerd(info.DriverStatus) {
			var m ocispec.Manifest
			if m, err = manifest(ctx, c, layers.ID); err == nil {
				archive, err = ociArchive(text, m, ref)
			}
		} else {
			archive, err = dockerArchive(text, len(layers.RootFS.Layers), ref)
		}
		if err != nil {
			return Image{}, err
		}
		resp, err := c.ImageLoad(ctx, archive, client.ImageLoadWithQuiet(true))
		if err != nil {
			return Image{}, err
		}
		defer resp.Body.Close()
		if err := loaded(resp.Body); err != nil {
			return Image{}, err
		}
		raw, err := c.ImageInspect(ctx, ref)
		return fromImage(&raw), err
	})
}

// inContainerd reports whether the engine's images are in containerd, by the status of its storage driver. Such an image has the ID of its manifest, others
// that of their configuration.
func inContainerd(driver [][2]string) bool {
	for _, pair := range driver {
		if pair[0] == "driver-type" && strings.HasPrefix(pair[1], "io.containerd.snapshotter.") {
			return true
		}
	}
	return false
}

// rewritten returns the configuration of the new image.
func rewritten(layers, config *image.InspectResponse, labels map[string]string) ([]byte, error) {
	content := config.Config
	if content == nil || len(layers.RootFS.Layers) == 0 {
		return nil, fmt.Errorf("image %s has no configuration or image %s no layers: %w", config.ID, layers.ID, errdefs.ErrInvalidArgument)
	}
	content.Labels = maps.Clone(content.Labels)
	if content.Labels == nil {
		content.Labels = map[string]string{}
	}
	maps.Copy(content.Labels, labels)
	return json.Marshal(map[string]any{
		"architecture": layers.Architecture, "variant": layers.Variant, "os": layers.Os, "created": layers.Created, "config": content,
		"rootfs": map[string]any{"type": "layers", "diff_ids": layers.RootFS.Layers},
	})
}

// dockerArchive returns an archive as docker save writes it, without the content of layers: the engine reads none that it has.
func dockerArchive(config []byte, layers int, ref string) (*bytes.Buffer, error) {
	files := make([]string, layers)
	for i := range files {
		files[i] = fmt.Sprintf("%d/layer.tar", i)
	}
	list, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{ref}, "Layers": files}})
	if err != nil {
		return nil, err
	}
	return archived(file{"config.json", config}, file{"manifest.json", list})
}

// ociArchive returns an archive in OCI's layout, without the content of layers, for an engine that has them. The image has the layers of a manifest.
func ociArchive(config []byte, m ocispec.Manifest, ref string) (*bytes.Buffer, error) {
	name, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, fmt.Errorf("the name %q of an image: %w: %w", ref, err, errdefs.ErrInvalidArgument)
	}
	m.Config.Digest, m.Config.Size = digest.FromBytes(config), int64(len(config))
	m.Annotations = nil
	manifest, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{{
		MediaType: m.MediaType, Digest: digest.FromBytes(manifest), Size: int64(len(manifest)),
		Annotations: map[string]string{"io.containerd.image.name": reference.TagNameOnly(name).String()},
	}}}
	index.SchemaVersion = 2
	list, err := json.Marshal(index)
	if err != nil {
		return nil, err
	}
	return archived(
		file{ocispec.ImageLayoutFile, []byte(`{"imageLayoutVersion":"` + ocispec.ImageLayoutVersion + `"}`)},
		file{blob(digest.FromBytes(config)), config}, file{blob(digest.FromBytes(manifest)), manifest}, file{ocispec.ImageIndexFile, list},
	)
}

func blob(d digest.Digest) string { return "blobs/" + d.Algorithm().String() + "/" + d.Encoded() }

type file struct {
	name    string
	content []byte
}

func archived(files ...file) (*bytes.Buffer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	return &out, w.Close()
}

// maxManifest bounds a manifest in bytes: that of 127 layers, which an engine allows, has 20 KB.
const maxManifest = 4 << 20

// manifest returns the manifest of an image in containerd's store by its ID. The engine's API has it in the archive of the whole image only.
func manifest(ctx context.Context, c *client.Client, id string) (m ocispec.Manifest, err error) {
	d, err := digest.Parse(id)
	if err != nil {
		return m, fmt.Errorf("the engine's ID %q of an image: %w: %w", id, err, errdefs.ErrInternal)
	}
	body, err := c.ImageSave(ctx, []string{id})
	if err != nil {
		return m, err
	}
	defer body.Close() // the engine stops in the middle
	for archive := tar.NewReader(body); ; {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return m, fmt.Errorf("the archive of image %s has no manifest: %w", id, errdefs.ErrInternal)
		case err != nil:
			return m, fmt.Errorf("the archive of image %s broke off: %w: %w", id, err, errdefs.ErrUnavailable)
		case h.Name != blob(d):
			continue
		}
		text, err := io.ReadAll(io.LimitReader(archive, maxManifest))
		if err != nil {
			return m, fmt.Errorf("the archive of image %s broke off: %w: %w", id, err, errdefs.ErrUnavailable)
		}
		if err := json.Unmarshal(text, &m); err != nil || len(m.Layers) == 0 {
			return m, fmt.Errorf("image %s is not of one platform: %w", id, errors.Join(err, errdefs.ErrInvalidArgument))
		}
		return m, nil
	}
}

// loaded reads the engine's answer to a load, which has its errors in the text of a success.
func loaded(body io.Reader) error {
	for messages := json.NewDecoder(body); ; {
		var m struct {
			Error string `json:"error"`
		}
		switch err := messages.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the engine's answer broke off: %w: %w", err, errdefs.ErrUnavailable)
		case m.Error != "":
			return fmt.Errorf("%s: %w", m.Error, errdefs.ErrInternal)
		}
	}
}
