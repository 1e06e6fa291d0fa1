package recovery

import (
	"context"
	"slices"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// findFormer adds the former instances that only containers name. The record of a sandbox names the store that last wrote it,
// which may be one that a rebuild has created.
func (g Gatherer) findFormer(ctx context.Context, in *Input, containers []dockerx.Container, known []Known) error {
	recorded, instances := g.recorded(known), in.instances(known, nil)
	strangers := slices.DeleteFunc(slices.Clone(containers), func(c dockerx.Container) bool {
		return !isPrimary(c) || instances[c.Labels[naming.Instance]] || !recorded(c.Labels[naming.SandboxID])
	})
	details, _, failed := g.inspectAll(ctx, strangers)
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, d := range details {
		if owns(g.Files.Paths(d.Labels[naming.SandboxID]).Ctl, d) {
			in.Former = append(in.Former, d.Labels[naming.Instance])
		}
	}
	for _, f := range failed {
		in.unreadable(g.Log, f)
	}
	return nil
}
