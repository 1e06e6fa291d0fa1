package rehydrate

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/naming"
)

// atOnce is how many containers are inspected at the same time.
const atOnce = 16

// inspect fills in the containers that are wanted. One that fails is asked for once more when the engine has shown by a list
// that it answers.
func (g Gatherer) inspect(ctx context.Context, in *Input, w sights, wanted func(dockerx.Container) bool) error {
	var todo []dockerx.Container
	for _, s := range w {
		for _, c := range s.listed {
			if wanted(c) {
				todo = append(todo, c)
			}
		}
	}
	details, failed := g.inspectAll(ctx, todo)
	if len(failed) > 0 {
		if _, err := g.Engine.ListNetworks(ctx, map[string]string{naming.SandboxID: ""}); err != nil {
			return fmt.Errorf("make sure that the engine answers: %w", err)
		}
		again := make([]dockerx.Container, 0, len(failed))
		for _, f := range failed {
			again = append(again, f.container)
		}
		var more []dockerx.ContainerDetail
		more, failed = g.inspectAll(ctx, again)
		details = append(details, more...)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, d := range details {
		s := w[d.Labels[naming.SandboxID]]
		s.Containers = append(s.Containers, d)
	}
	for _, f := range failed {
		s := w[f.container.Labels[naming.SandboxID]]
		s.Unreadable = append(s.Unreadable, f.container)
		g.Log.Warn("a container can't be read: it is skipped", "sandbox_id", f.container.Labels[naming.SandboxID],
			"container_id", f.container.ID, "err", f.err)
		gone := skippedContainer(f.container, "it can't be inspected")
		gone.Unreadable = true
		in.Skipped = append(in.Skipped, gone)
	}
	return nil
}

// failure is a container that could not be inspected.
type failure struct {
	container dockerx.Container
	err       error
}

// inspectAll leaves out those that went meanwhile.
func (g Gatherer) inspectAll(ctx context.Context, list []dockerx.Container) (details []dockerx.ContainerDetail, failed []failure) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan dockerx.Container)
	for range min(atOnce, len(list)) {
		wg.Go(func() {
			for c := range next {
				d, err := g.Engine.InspectContainer(ctx, c.ID)
				mu.Lock()
				switch {
				case err == nil:
					d.Labels = c.Labels // one list decides which sandbox it is of
					details = append(details, d)
				case !errdefs.IsNotFound(err):
					failed = append(failed, failure{c, err})
				}
				mu.Unlock()
			}
		})
	}
	for _, c := range list {
		next <- c
	}
	close(next)
	wg.Wait()
	return details, failed
}
