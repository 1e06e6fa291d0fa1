package server

import (
	"cmp"
	"context"
	"fmt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/host/ipcbounds"
)

// primaryMemory is the memory limit in bytes of the primary of a valid spec, where other is the default; 0: none.
func primaryMemory(spec *agboxv1.CreateSpec, other int64) int64 {
	own, _ := validate.MemoryBytes(spec.GetMemoryLimit())
	return cmp.Or(own, other)
}

// fits refuses a memory limit that the primary's /dev/shm and System V memory, whose bounds are fixed in the container, could use up,
// because then the kernel would kill PID 1. It accepts any limit for sandboxes without recorded bounds.
func (u update) fits(ctx context.Context) error {
	sb, err := u.deps.Store.Sandbox(ctx, u.id)
	if err != nil {
		return err
	}
	c := sb.Desired.GetConfinement()
	was, now := primaryMemory(sb.Spec, c.GetMemoryLimitBytes()), primaryMemory(u.next, c.GetMemoryLimitBytes())
	if c == nil || c.PrimaryMemoryBytes == nil || now == 0 || was != 0 && now >= was {
		return nil
	}
	least := ipcbounds.Least(c.GetPrimaryMemoryBytes())
	if now >= least {
		return nil
	}
	const mib = 1 << 20
	return immutable(u.id, validate.Errors{{Field: "memory_limit", Message: fmt.Sprintf("memory_limit is too low for the container that exists, whose /dev/shm and "+
		"System V memory are fixed: choose %dMiB or more, or apply with --replace", (least+mib-1)/mib)}})
}
