package dockerx

import (
	"context"
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
// image was built on it (containerd's store removes that one, and keeps the layers for the others); ErrUnavailable.
func (e *Engine) RemoveImage(ctx context.Context, id string) error {
	return e.do(ctx, OpRemoveImage, "remove image "+id, func(ctx context.Context, c *client.Client) error {
		_, err := c.ImageRemove(ctx, id, image.RemoveOptions{})
		return reclass(ignore(err, errdefs.IsNotFound), errdefs.IsConflict, errdefs.ErrFailedPrecondition)
	})
}
