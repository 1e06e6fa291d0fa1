package dockerx

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/agbox/agbox/dockerx/internal/flight"
)

// Image is what an image says about the containers made from it.
type Image struct {
	ID                   string // "sha256:..."
	User, WorkingDir     string
	Env, Entrypoint, Cmd []string // Env as KEY=VALUE
}

// InspectImage returns a local image by reference or ID. Errors: ErrNotFound; ErrInvalidArgument for what is no
// reference; ErrUnavailable.
func (e *Engine) InspectImage(ctx context.Context, ref string) (Image, error) {
	var out Image
	err := e.do(ctx, OpInspectImage, func(ctx context.Context, c *client.Client) error {
		raw, err := c.ImageInspect(ctx, ref)
		out = fromImage(&raw)
		return err
	})
	if err != nil {
		return Image{}, fmt.Errorf("inspect image %s: %w", ref, err)
	}
	return out, nil
}

// PullOptions say how an image is made to be there. The zero value pulls it only when it is not.
type PullOptions struct {
	// Always asks the registry even when the image is there. A registry that can't answer is an error then.
	Always bool
	// Progress is called while a pull goes on, with the present numbers when it begins or is joined, then when there are
	// newer ones, at most four times a second, and for the last ones when it ended well; never when nothing is pulled,
	// nor after EnsureImage has returned. A slow one holds up its own EnsureImage, not the pull. May be nil.
	Progress func(PullProgress)
}

// PullProgress is how far a pull is. No number ever falls while it goes on.
type PullProgress struct {
	// Current of Total bytes have come: compressed, of the layers whose size the engine has told of so far. Layers that the
	// engine has already have none.
	Current, Total int64
	// Done of Layers are in place; both are 0 until the registry has answered.
	Done, Layers int
}

// EnsureImage returns a local image and pulls it first when it is not there. Pulls of one reference are shared. A caller
// that leaves does not end a pull that others wait for; the last one does, and so does Options.PullTimeout. Without
// Always, a local image is never pulled again, whatever the registry has by now.
//
// Credentials are those of the Docker CLI: see Options.CredentialsDir. Where they can't be read, the pull is tried without,
// as the CLI does, since most images need none; if the registry then refuses, that error says why they could not be read.
//
// The error is a sentence for the user that says which of name, tag, credentials or network it was, with the way out.
// Errors that trying again does not mend: ErrNotFound, the registry has no such image, none for this platform, or keeps it
// from us; ErrInvalidArgument, not a reference; ErrPermissionDenied, the registry wants credentials or refused ours, or
// they can't be read. ErrUnavailable is everything else: engine or registry not reachable, a pull that broke off or took
// too long, a credential helper that failed.
func (e *Engine) EnsureImage(ctx context.Context, ref string, o PullOptions) (Image, error) {
	if !o.Always || isImageID(ref) {
		if img, err := e.InspectImage(ctx, ref); !errdefs.IsNotFound(err) {
			return img, err
		}
	}
	name, err := pullName(ref)
	if err != nil {
		return Image{}, fmt.Errorf("pull image %s: %w", ref, err)
	}
	img, err := e.pulls.Do(ctx, name, func(ctx context.Context, report func(PullProgress)) (Image, error) {
		return e.pull(ctx, name, report)
	}, o.Progress)
	if errors.Is(err, flight.ErrClosed) {
		err = errdefs.ErrUnavailable
	}
	if err != nil {
		return Image{}, fmt.Errorf("pull image %s: %w", ref, err)
	}
	return img, nil
}

// pullName returns the full form of ref, with the tag "latest" if it has none.
func pullName(ref string) (string, error) {
	if isImageID(ref) {
		return "", fmt.Errorf("no image with this ID: %w", errdefs.ErrNotFound)
	}
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "", fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	return reference.TagNameOnly(named).String(), nil
}

// isImageID reports whether ref names an image by its content, which no registry can change.
func isImageID(ref string) bool { return isFullID(strings.TrimPrefix(ref, "sha256:")) }

func fromImage(raw *image.InspectResponse) Image {
	out := Image{ID: raw.ID}
	if c := raw.Config; c != nil {
		out.User, out.WorkingDir, out.Env, out.Entrypoint, out.Cmd = c.User, c.WorkingDir, c.Env, c.Entrypoint, c.Cmd
	}
	return out
}
