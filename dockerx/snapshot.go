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
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
)

// LocalImage is an image as a list of local images shows it.
type LocalImage struct {
	ID      string   // "sha256:..."
	Refs    []string // names with tags, sorted; none for an image that was left without
	Labels  map[string]string
	Created time.Time
	// Size is that of all its layers in bytes, including those that it shares with other images.
	Size int64
	// Parent is the ID of the image that it was built or committed on; empty: it was pulled or loaded.
	Parent string
}

// CommitContainer makes an unnamed image of a container's own filesystem, without its mounts and volumes, and returns the image's ID. It neither
// freezes a running container nor thaws a frozen one: files that change meanwhile may be torn. If the caller leaves, the engine goes on: the
// image is found by its labels.
//
// The image has the labels given here, but also the container's own labels and environment in its configuration, which the engine does not let
// a caller leave out. So it is only good as the source of RewriteImage.
//
// Errors: ErrNotFound; ErrFailedPrecondition when it is being removed; ErrUnavailable.
func (e *Engine) CommitContainer(ctx context.Context, id string, labels map[string]string) (string, error) {
	return ask(ctx, e, OpCommitContainer, "commit container "+id, func(ctx context.Context, c *client.Client) (string, error) {
		resp, err := c.ContainerCommit(ctx, id, container.CommitOptions{Config: &container.Config{Labels: labels}})
		return resp.ID, reclass(err, errdefs.IsConflict, errdefs.ErrFailedPrecondition)
	})
}

// RewriteImage makes an image named ref that has the layers of one local image and the configuration of another, with labels added to that
// configuration. All are references or IDs. The new image has no parent, shares the layers, and outlives both. Repeated with the same
// arguments, it makes the same image with the same ID. Another image of that name loses the name.
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
		archive, err := rewritten(&layers, &config, ref, labels)
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

// rewritten returns an archive as docker save writes it, without the content of layers: the engine reads none that it has.
func rewritten(layers, config *image.InspectResponse, ref string, labels map[string]string) (*bytes.Buffer, error) {
	content := config.Config
	if content == nil || len(layers.RootFS.Layers) == 0 {
		return nil, fmt.Errorf("image %s has no configuration or image %s no layers: %w", config.ID, layers.ID, errdefs.ErrInvalidArgument)
	}
	content.Labels = maps.Clone(content.Labels)
	if content.Labels == nil {
		content.Labels = map[string]string{}
	}
	maps.Copy(content.Labels, labels)
	files := make([]string, len(layers.RootFS.Layers))
	for i := range files {
		files[i] = fmt.Sprintf("%d/layer.tar", i)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, file := range []struct {
		name    string
		content any
	}{
		{"config.json", map[string]any{
			"architecture": layers.Architecture, "variant": layers.Variant, "os": layers.Os, "created": layers.Created, "config": content,
			"rootfs": map[string]any{"type": "layers", "diff_ids": layers.RootFS.Layers},
		}},
		{"manifest.json", []map[string]any{{"Config": "config.json", "RepoTags": []string{ref}, "Layers": files}}},
	} {
		text, err := json.Marshal(file.content)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: file.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))})
		}
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			return nil, err
		}
	}
	return &out, w.Close()
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

// ListImages returns all local images that have all the labels, also unnamed ones on which others were built, newest first; an empty value matches the key alone. It is one engine call.
// Errors: ErrUnavailable.
func (e *Engine) ListImages(ctx context.Context, labels map[string]string) ([]LocalImage, error) {
	return ask(ctx, e, OpListImages, "list images", func(ctx context.Context, c *client.Client) ([]LocalImage, error) {
		raw, err := c.ImageList(ctx, image.ListOptions{All: true, Filters: labelFilter(labels)})
		var out []LocalImage
		for _, i := range raw {
			out = append(out, LocalImage{ID: i.ID, Refs: tagged(i.RepoTags), Labels: i.Labels, Created: time.Unix(i.Created, 0).UTC(), Size: i.Size, Parent: i.ParentID})
		}
		return out, err
	})
}

// RemoveImage removes an image with its one name, by ID, and the layers that nothing else has. It removes no other image. One that does
// not exist is a success. Errors: ErrFailedPrecondition while a container, in any state, was made from it, while it has several names, or while an
// image was built on it; ErrUnavailable.
func (e *Engine) RemoveImage(ctx context.Context, id string) error {
	return e.do(ctx, OpRemoveImage, "remove image "+id, func(ctx context.Context, c *client.Client) error {
		_, err := c.ImageRemove(ctx, id, image.RemoveOptions{})
		return reclass(ignore(err, errdefs.IsNotFound), errdefs.IsConflict, errdefs.ErrFailedPrecondition)
	})
}
