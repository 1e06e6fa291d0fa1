package dockerx

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
)

// Image is an image's ID and the defaults that it sets for its containers.
type Image struct {
	ID                   string // "sha256:..."
	User, WorkingDir     string
	Env, Entrypoint, Cmd []string // Env as KEY=VALUE
	Labels               map[string]string
	Refs                 []string // names with tags, sorted; none for an image that was left without
}

// InspectImage returns a local image by reference or ID. Errors: ErrNotFound; ErrInvalidArgument for a malformed
// reference; ErrUnavailable.
func (e *Engine) InspectImage(ctx context.Context, ref string) (Image, error) {
	return ask(ctx, e, OpInspectImage, "inspect image "+ref, func(ctx context.Context, c *client.Client) (Image, error) {
		raw, err := c.ImageInspect(ctx, ref)
		return fromImage(&raw), err
	})
}

// PullOptions control EnsureImage. The zero value pulls an image only when it does not exist locally.
type PullOptions struct {
	// Always asks the registry even when the image exists locally. A registry that doesn't answer is an error then.
	Always bool
	// Progress is called during a pull: with the present numbers when the pull starts or is joined, then with newer ones
	// at most four times a second, and with the final ones when the pull succeeded; never when nothing is pulled, nor after
	// EnsureImage has returned. A slow Progress delays its own EnsureImage, not the pull. May be nil.
	Progress func(PullProgress)
}

// PullProgress is the progress of a pull. No number decreases during a pull.
type PullProgress struct {
	// Current of Total bytes were downloaded: compressed, of the layers whose size the engine has reported so far. Layers
	// that exist locally count no bytes.
	Current, Total int64
	// Done of Layers are complete; both are 0 until the registry has answered.
	Done, Layers int
}

// EnsureImage returns a local image and pulls it first when it does not exist. Concurrent pulls of one reference are shared.
// A caller that leaves does not cancel a pull that others wait for; the last one that leaves does, and so does
// Options.PullTimeout. Without Always, a local image is never pulled again, even if the registry has a newer one.
//
// Credentials are those of the Docker CLI: see Options.CredentialsDir. Where they can't be read, the pull runs without,
// as with the CLI, since most images need none; if the registry then refuses, the error says why they could not be read.
//
// The error is a sentence for the user that says whether name, tag, credentials or network was wrong, and what to do.
// Permanent errors: ErrNotFound, the registry has no such image, none for this platform, or hides it from these
// credentials; ErrInvalidArgument, not a reference; ErrPermissionDenied, the registry requires credentials or refused them,
// or they can't be read. ErrUnavailable is everything else: engine or registry not reachable, a pull that was interrupted or
// exceeded its timeout, a credential helper that failed.
func (e *Engine) EnsureImage(ctx context.Context, ref string, o PullOptions) (Image, error) {
	if !o.Always || isImageID(ref) {
		if img, err := e.InspectImage(ctx, ref); !errdefs.IsNotFound(err) {
			return img, err
		}
	}
	name, err := pullName(ref)
	var img Image
	if err == nil {
		img, err = e.pulls.Do(ctx, name.String(), func(ctx context.Context, report func(PullProgress)) (Image, error) {
			return e.pull(ctx, name, report)
		}, o.Progress)
	}
	return img, about("pull image "+ref, err)
}

// pullName returns the full form of ref, with the tag "latest" if it has none.
func pullName(ref string) (reference.Named, error) {
	if isImageID(ref) {
		return nil, fmt.Errorf("no local image has this ID, and an ID cannot be pulled; use a name and tag: %w", errdefs.ErrNotFound)
	}
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	return reference.TagNameOnly(named), nil
}

// isImageID reports whether ref names an image by its content, which no registry can change.
func isImageID(ref string) bool { return isFullID(strings.TrimPrefix(ref, "sha256:")) }

// tagged returns names with tags, sorted, without those that the engine shows for an image without one.
func tagged(refs []string) []string {
	refs = slices.DeleteFunc(slices.Clone(refs), func(ref string) bool { return ref == "<none>:<none>" })
	slices.Sort(refs)
	return refs
}

func fromImage(raw *image.InspectResponse) Image {
	out := Image{ID: raw.ID, Refs: tagged(raw.RepoTags)}
	if c := raw.Config; c != nil {
		out.User, out.WorkingDir, out.Env, out.Entrypoint, out.Cmd = c.User, c.WorkingDir, c.Env, c.Entrypoint, c.Cmd
		out.Labels = c.Labels
	}
	return out
}
