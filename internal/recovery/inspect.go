package recovery

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// atOnce is how many containers are inspected concurrently.
const atOnce = 16

// inspect inspects the wanted containers. A failed inspection is retried once, after a list has proven that the engine
// answers.
func (g Gatherer) inspect(ctx context.Context, in *Input, w sights, wanted func(dockerx.Container) bool) error {
	var todo []dockerx.Container
	for _, s := range w {
		for _, c := range s.listed {
			if wanted(c) {
				todo = append(todo, c)
			}
		}
	}
	details, gone, failed := g.inspectAll(ctx, todo)
	if len(failed) > 0 {
		if _, err := g.Engine.ListNetworks(ctx, map[string]string{naming.SandboxID: ""}); err != nil {
			return fmt.Errorf("check that the engine answers: %w", err)
		}
		again := make([]dockerx.Container, 0, len(failed))
		for _, f := range failed {
			again = append(again, f.container)
		}
		var more []dockerx.ContainerDetail
		var went []dockerx.Container
		more, went, failed = g.inspectAll(ctx, again)
		details, gone = append(details, more...), append(gone, went...)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, d := range details {
		s := w[d.Labels[naming.SandboxID]]
		s.Containers = append(s.Containers, d)
	}
	for _, c := range gone { // drop it from the list
		s := w[c.Labels[naming.SandboxID]]
		s.listed = slices.DeleteFunc(s.listed, func(l dockerx.Container) bool { return l.ID == c.ID })
	}
	for _, f := range failed {
		s := w[f.container.Labels[naming.SandboxID]]
		s.Unreadable = append(s.Unreadable, f.container)
		in.unreadable(g.Log, f)
	}
	return nil
}

func (in *Input) unreadable(log *slog.Logger, f failure) {
	log.Warn("cannot inspect a container: it is skipped", "sandbox_id", f.container.Labels[naming.SandboxID],
		"container_id", f.container.ID, "err", f.err)
	unread := skippedContainer(f.container, "it can't be inspected")
	unread.Unreadable = true
	in.Skipped = append(in.Skipped, unread)
}

// failure is a failed inspection of a container.
type failure struct {
	container dockerx.Container
	err       error
}

// inspectAll distinguishes containers removed meanwhile (gone) from failed inspections.
func (g Gatherer) inspectAll(
	ctx context.Context, list []dockerx.Container,
) (details []dockerx.ContainerDetail, gone []dockerx.Container, failed []failure) {
	var mu sync.Mutex
	var pool errgroup.Group
	pool.SetLimit(atOnce)
	for _, c := range list {
		pool.Go(func() error {
			d, err := g.Engine.InspectContainer(ctx, c.ID)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				d.Labels = c.Labels // the list decides which sandbox it belongs to
				details = append(details, d)
			case errdefs.IsNotFound(err):
				gone = append(gone, c)
			default:
				failed = append(failed, failure{c, err})
			}
			return nil
		})
	}
	_ = pool.Wait() // the functions return no errors
	return details, gone, failed
}

// images returns the images of containers whose spec is guessed.
func (g Gatherer) images(ctx context.Context, found []Found) map[string]dockerx.Image {
	images := map[string]dockerx.Image{}
	for _, f := range found {
		labelled := slices.ContainsFunc(f.Containers, func(c dockerx.ContainerDetail) bool {
			_, err := plan.ParseSpecLabel(c.Labels[naming.Spec])
			return err == nil
		})
		for _, c := range f.Containers {
			if _, seen := images[c.Image]; labelled || seen || c.Image == "" {
				continue
			}
			image, err := g.Engine.InspectImage(ctx, c.Image)
			if err != nil {
				g.Log.Warn("cannot inspect an image: its environment is attributed to the spec", "err", err)
				continue
			}
			images[c.Image] = image
		}
	}
	return images
}
