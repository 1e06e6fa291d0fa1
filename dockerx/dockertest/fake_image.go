package dockertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agbox/agbox/internal/wait"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"github.com/agbox/agbox/dockerx"
)

// AddImage adds a local image. An empty ID is generated.
func (f *Fake) AddImage(ref string, img dockerx.Image) {
	f.do(func() { f.images[ref] = f.withID(img) })
}

// AddRemoteImage makes an image available for pulls. An empty ID is generated.
func (f *Fake) AddRemoteImage(ref string, img dockerx.Image) {
	f.do(func() { f.registry[ref] = f.withID(img) })
}

// FailPulls makes every pull of ref fail with err, after PullDelay; nil stops that. The messages of the real engine are in
// dockerx.EnsureImage's errors; only their classes matter.
func (f *Fake) FailPulls(ref string, err error) {
	f.do(func() { f.refusals[ref] = err })
}

// RemoveImageOutside removes a name of a local image; containers created from it stay.
func (f *Fake) RemoveImageOutside(ref string) {
	f.do(func() { delete(f.images, ref) })
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
	img, ok := f.images[ref]
	for _, other := range f.images {
		if !ok && other.ID == ref {
			img, ok = other, true
		}
	}
	img.Refs = f.refsOf(img.ID)
	return copyImage(img), ok
}

// InspectImage implements Subject.
func (f *Fake) InspectImage(ctx context.Context, ref string) (dockerx.Image, error) {
	return ask(ctx, f, dockerx.OpInspectImage, func() (dockerx.Image, error) {
		img, ok := f.image(ref)
		if _, err := reference.ParseNormalizedNamed(ref); !ok && err != nil {
			return img, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
		}
		if !ok {
			return img, fmt.Errorf("no such image: %s: %w", ref, errdefs.ErrNotFound)
		}
		return img, nil
	})
}

// EnsureImage implements Subject: it pulls images from AddRemoteImage, in PullDelay, and shares pulls as dockerx.Engine does.
func (f *Fake) EnsureImage(ctx context.Context, ref string, o dockerx.PullOptions) (dockerx.Image, error) {
	if !o.Always || strings.HasPrefix(ref, "sha256:") {
		if img, err := f.InspectImage(ctx, ref); !errdefs.IsNotFound(err) {
			return img, err
		}
	}
	img, err := f.pulls.Do(ctx, ref, func(ctx context.Context, report func(dockerx.PullProgress)) (dockerx.Image, error) {
		return f.pull(ctx, ref, report)
	}, o.Progress)
	if err != nil {
		return dockerx.Image{}, fmt.Errorf("pull image %s: %w", ref, err)
	}
	return copyImage(img), nil
}

func (f *Fake) pull(ctx context.Context, ref string, report func(dockerx.PullProgress)) (dockerx.Image, error) {
	var img dockerx.Image
	err := f.callUnlocked(ctx, dockerx.OpPullImage, func(ctx context.Context) error {
		if err := f.download(ctx, report); err != nil {
			return err
		}
		return f.locked(func() (err error) {
			img, err = f.fetch(ref)
			return err
		})
	})
	if err != nil {
		return dockerx.Image{}, err
	}
	return img, nil
}

// download takes PullDelay and reports PullSteps meanwhile.
func (f *Fake) download(ctx context.Context, report func(dockerx.PullProgress)) error {
	if len(f.PullSteps) == 0 {
		return wait.For(ctx, f.PullDelay)
	}
	for i, step := range f.PullSteps {
		n := time.Duration(len(f.PullSteps))
		if err := wait.For(ctx, f.PullDelay*time.Duration(i+1)/n-f.PullDelay*time.Duration(i)/n); err != nil {
			return err
		}
		report(step)
	}
	return nil
}

// fetch makes the registry's image a local one. Called with mu held.
func (f *Fake) fetch(ref string) (dockerx.Image, error) {
	if _, err := reference.ParseNormalizedNamed(ref); err != nil {
		return dockerx.Image{}, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	if err := f.refusals[ref]; err != nil {
		return dockerx.Image{}, err
	}
	img, ok := f.registry[ref]
	if !ok {
		return dockerx.Image{}, fmt.Errorf("the registry has no such tag: %w", errdefs.ErrNotFound)
	}
	f.images[ref] = img
	return img, nil
}
