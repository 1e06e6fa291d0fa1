package dockertest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"github.com/agbox/agbox/dockerx"
)

// madeImage is what the fake knows of an image that was made in it.
type madeImage struct {
	files   tree
	created time.Time
	base    string // the ID of the image that it was committed on, or built on, which it keeps from removal; a rewritten one has none
	step    string // of the Dockerfile that it was built by
}

// filesOf returns a copy of an image's files. Called with mu held.
func (f *Fake) filesOf(imageID string) tree {
	if m, ok := f.made[imageID]; ok {
		return maps.Clone(m.files)
	}
	return newTree()
}

// CommitContainer implements Subject. It takes CommitDelay, also if the caller leaves; all files are taken at its end.
func (f *Fake) CommitContainer(ctx context.Context, id string, labels map[string]string) (imageID string, err error) {
	labels = maps.Clone(labels)
	err = f.callUnlocked(ctx, dockerx.OpCommitContainer, func(ctx context.Context) error {
		var now *link
		err := f.locked(func() error {
			now = f.link
			_, err := f.find(id)
			return err
		})
		if err != nil {
			return err
		}
		made := make(chan string, 1)
		end := f.later(ctx, f.CommitDelay, now, func(context.Context) error {
			return f.locked(func() error {
				c, err := f.find(id)
				if err != nil {
					return err
				}
				made <- f.committed(c, labels)
				return nil
			})
		})
		select {
		case err = <-end:
		case <-now.lost:
			err = errUnreachable()
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err == nil {
			imageID = <-made
		}
		return err
	})
	return imageID, err
}

// committed adds the image of a container as it is. Called with mu held.
func (f *Fake) committed(c *fakeContainer, labels map[string]string) (id string) {
	d := c.copy()
	img := f.withID(dockerx.Image{User: d.User, WorkingDir: d.WorkingDir, Env: d.Env, Entrypoint: d.Entrypoint, Cmd: d.Cmd, Labels: d.Labels})
	if img.Labels == nil {
		img.Labels = map[string]string{}
	}
	maps.Copy(img.Labels, labels)
	f.images[img.ID] = img
	f.made[img.ID] = madeImage{files: maps.Clone(c.files), created: f.clock().UTC(), base: d.Image}
	return img.ID
}

// RewriteImage implements Subject.
func (f *Fake) RewriteImage(ctx context.Context, layersOf, configOf, ref string, labels map[string]string) (dockerx.Image, error) {
	labels = maps.Clone(labels)
	return ask(ctx, f, dockerx.OpRewriteImage, func() (dockerx.Image, error) {
		layers, there := f.image(layersOf)
		img, ok := f.image(configOf)
		if !there || !ok {
			return dockerx.Image{}, fmt.Errorf("no such image: %s or %s: %w", layersOf, configOf, errdefs.ErrNotFound)
		}
		if named, err := reference.ParseNormalizedNamed(ref); err != nil || reference.IsNameOnly(named) {
			return dockerx.Image{}, fmt.Errorf("%s is not a name with a tag: %w", ref, errdefs.ErrInvalidArgument)
		}
		img.Labels = maps.Clone(img.Labels)
		if img.Labels == nil {
			img.Labels = map[string]string{}
		}
		maps.Copy(img.Labels, labels)
		img.ID, img.Refs = "", nil
		img.ID = fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Append(nil, layers.ID, img)))
		f.unname(ref)
		delete(f.images, img.ID) // it was left without a name
		f.images[ref] = img
		f.made[img.ID] = madeImage{files: f.filesOf(layers.ID), created: f.made[layers.ID].created}
		img, _ = f.image(ref)
		return img, nil
	})
}

// unname takes a name from an image, which stays. Called with mu held.
func (f *Fake) unname(ref string) {
	old, ok := f.images[ref]
	delete(f.images, ref)
	if ok && len(f.namesOf(old.ID)) == 0 {
		f.images[old.ID] = old
	}
}

// namesOf returns the keys of an image, which are its names, or its ID if it has none. Called with mu held.
func (f *Fake) namesOf(id string) (names []string) {
	for name, img := range f.images {
		if img.ID == id {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// refsOf returns the names of an image as the engine shows them. Called with mu held.
func (f *Fake) refsOf(id string) []string {
	return slices.DeleteFunc(f.namesOf(id), func(name string) bool { return name == id })
}

// ListImages implements Subject.
func (f *Fake) ListImages(ctx context.Context, labels map[string]string) ([]dockerx.LocalImage, error) {
	return ask(ctx, f, dockerx.OpListImages, func() (out []dockerx.LocalImage, err error) {
		seen := map[string]bool{}
		for _, img := range f.images {
			if seen[img.ID] || !dockerx.LabelsMatch(img.Labels, labels) {
				continue
			}
			seen[img.ID] = true
			out = append(out, dockerx.LocalImage{ID: img.ID, Refs: f.refsOf(img.ID), Labels: maps.Clone(img.Labels), Created: f.made[img.ID].created, Size: 1 << 20, Parent: f.made[img.ID].base})
		}
		slices.SortFunc(out, func(a, b dockerx.LocalImage) int {
			return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
		})
		return out, nil
	})
}

// RemoveImage implements Subject.
func (f *Fake) RemoveImage(ctx context.Context, id string) error {
	return f.call(ctx, dockerx.OpRemoveImage, func() error {
		for _, c := range f.containers {
			if f.sees(c) && c.detail.Image == id {
				return fmt.Errorf("container %s is using it: %w", c.detail.ID, errdefs.ErrFailedPrecondition)
			}
		}
		for _, m := range f.made {
			if m.base == id {
				return fmt.Errorf("image %s has dependent child images: %w", id, errdefs.ErrFailedPrecondition)
			}
		}
		names := f.namesOf(id)
		if len(names) > 1 {
			return fmt.Errorf("image %s has the names %v: %w", id, names, errdefs.ErrFailedPrecondition)
		}
		for _, name := range names {
			delete(f.images, name)
		}
		delete(f.made, id)
		return nil
	})
}
