package dockertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"github.com/agbox/agbox/dockerx"
)

// AddImage puts an image into the engine. An empty ID is made up.
func (f *Fake) AddImage(ref string, img dockerx.Image) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images[ref] = f.withID(img)
}

// AddRemoteImage offers an image to be pulled. An empty ID is made up.
func (f *Fake) AddRemoteImage(ref string, img dockerx.Image) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registry[ref] = f.withID(img)
}

// RemoveImage takes an image out of the engine; containers made from it stay.
func (f *Fake) RemoveImage(ref string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.images, ref)
}

// withID is called with mu held.
func (f *Fake) withID(img dockerx.Image) dockerx.Image {
	if img.ID == "" {
		img.ID = "sha256:" + f.newID()
	}
	return copyImage(img)
}

func copyImage(i dockerx.Image) dockerx.Image {
	i.Env, i.Entrypoint, i.Cmd = slices.Clone(i.Env), slices.Clone(i.Entrypoint), slices.Clone(i.Cmd)
	return i
}

// image returns a local image by reference or ID. Called with mu held.
func (f *Fake) image(ref string) (dockerx.Image, bool) {
	if img, ok := f.images[ref]; ok {
		return copyImage(img), true
	}
	for _, img := range f.images {
		if img.ID == ref {
			return copyImage(img), true
		}
	}
	return dockerx.Image{}, false
}

// InspectImage implements Engine.
func (f *Fake) InspectImage(ctx context.Context, ref string) (dockerx.Image, error) {
	var out dockerx.Image
	err := f.call(ctx, dockerx.OpInspectImage, func() error {
		img, ok := f.image(ref)
		if _, err := reference.ParseNormalizedNamed(ref); !ok && err != nil {
			return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
		}
		if !ok {
			return fmt.Errorf("no such image: %s: %w", ref, errdefs.ErrNotFound)
		}
		out = img
		return nil
	})
	if err != nil {
		return dockerx.Image{}, err
	}
	return out, nil
}

// EnsureImage implements Engine: pulls what AddRemoteImage offered, in PullDelay, shared as dockerx.Engine shares them.
func (f *Fake) EnsureImage(ctx context.Context, ref string, o dockerx.PullOptions) (dockerx.Image, error) {
	if !o.Always {
		if img, err := f.InspectImage(ctx, ref); !errdefs.IsNotFound(err) {
			return img, err
		}
	}
	img, err := f.pulls.Do(ctx, ref, func(ctx context.Context) (dockerx.Image, error) { return f.pull(ctx, ref) })
	if err != nil {
		return dockerx.Image{}, fmt.Errorf("pull image %s: %w", ref, err)
	}
	return copyImage(img), nil
}

func (f *Fake) pull(ctx context.Context, ref string) (dockerx.Image, error) {
	var img dockerx.Image
	err := f.callUnlocked(ctx, dockerx.OpPullImage, func(ctx context.Context) error {
		if err := sleep(ctx, f.PullDelay); err != nil {
			return err
		}
		return f.locked(func() error {
			var ok bool
			if img, ok = f.registry[ref]; !ok {
				return fmt.Errorf("manifest unknown: %w", errdefs.ErrNotFound)
			}
			f.images[ref] = img
			return nil
		})
	})
	if err != nil {
		return dockerx.Image{}, err
	}
	return img, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
