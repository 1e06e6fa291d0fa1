package dockerx

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

const (
	// cpuPeriod is the kernel's period for CPU quotas in microseconds, and the engine's default.
	cpuPeriod = 100_000
	// nanoCPUsPerQuota is one microsecond of that period.
	nanoCPUsPerQuota = 1_000_000_000 / cpuPeriod
	// minNanoCPUs is the engine's minimum: a quota of a millisecond.
	minNanoCPUs = 1000 * nanoCPUsPerQuota
	// unlimitedBytes is the kernel's value for no limit: the largest number of whole pages. It removes a limit, for which the
	// engine accepts neither 0 (unchanged) nor -1 (too small).
	unlimitedBytes = 0x7FFFFFFFFFFFF000
)

// Limits are the limits that can be changed while a container exists. 0: no limit.
type Limits struct {
	// NanoCPUs is at least 10,000,000 (0.01 CPU), in steps of 10,000: see Rounded.
	NanoCPUs int64
	// MemoryBytes is at least 6 MiB. It includes swap where the engine can account for swap.
	MemoryBytes int64
	Pids        int64
}

// Rounded returns l as an inspection of a container with these limits shows it.
func (l Limits) Rounded() Limits {
	l.NanoCPUs -= l.NanoCPUs % nanoCPUsPerQuota
	return l
}

// Check rejects limits that UpdateContainer rejects without calling the engine. Errors: ErrInvalidArgument.
func (l Limits) Check() error {
	if l.NanoCPUs < 0 || l.MemoryBytes < 0 || l.Pids < 0 {
		return fmt.Errorf("limits must not be negative: %+v: %w", l, errdefs.ErrInvalidArgument)
	}
	if l.NanoCPUs > 0 && l.NanoCPUs < minNanoCPUs {
		return fmt.Errorf("limit of %d nano CPUs: the minimum is %d: %w", l.NanoCPUs, minNanoCPUs, errdefs.ErrInvalidArgument)
	}
	return nil
}

// resources are the limits of a new container. It sets the quota instead of the engine's NanoCPUs, which can be changed later
// but not removed (20.10).
func (l Limits) resources() container.Resources {
	r := container.Resources{Memory: l.MemoryBytes, MemorySwap: l.MemoryBytes} // the engine ignores the latter where it cannot limit swap
	if l.NanoCPUs > 0 {
		r.CPUPeriod, r.CPUQuota = cpuPeriod, l.NanoCPUs/nanoCPUsPerQuota
	}
	if l.Pids > 0 {
		r.PidsLimit = &l.Pids
	}
	return r
}

// engineShmBytes is the engine's default size of /dev/shm.
const engineShmBytes = 64 << 20

// shmBytes is the size of /dev/shm in a new container; 0: the engine's default. Its content counts as memory and outlives the
// processes that wrote it, so it is at most half of the limit. It can't be changed later.
func (l Limits) shmBytes() int64 {
	return min(engineShmBytes, l.MemoryBytes/2)
}

// update are the limits for an existing container: each is sent, and 0 as the value that removes a limit.
func (l Limits) update() container.Resources {
	r := l.resources()
	r.PidsLimit = &l.Pids // 0: no limit; nil would not change it
	if l.NanoCPUs == 0 {
		r.CPUPeriod, r.CPUQuota = cpuPeriod, -1
	}
	if l.MemoryBytes == 0 {
		r.Memory, r.MemorySwap = unlimitedBytes, unlimitedBytes
	}
	return r
}

// limitsOf parses the limits that resources and update set, and those that other clients set as NanoCPUs.
func limitsOf(r *container.Resources) Limits {
	l := Limits{NanoCPUs: r.NanoCPUs}
	if r.CPUQuota > 0 {
		l.NanoCPUs = int64(math.Round(float64(r.CPUQuota) * 1e9 / float64(cmp.Or(r.CPUPeriod, cpuPeriod))))
	}
	if r.Memory > 0 && r.Memory < unlimitedBytes {
		l.MemoryBytes = r.Memory
	}
	if r.PidsLimit != nil && *r.PidsLimit > 0 {
		l.Pids = *r.PidsLimit
	}
	return l
}

// UpdateContainer sets the limits of a container, running or not; they survive restarts. It sets all three, and either all
// change or none does. A running container whose memory limit is removed has no swap.
//
// Errors: ErrNotFound; ErrInvalidArgument for a limit that the engine rejects, such as memory below 6 MiB;
// ErrFailedPrecondition when another client has limited the CPUs as NanoCPUs (docker update --cpus); ErrInternal when
// the kernel refuses, mostly memory below the container's present use (20.10, with the text of runc; nothing changed);
// ErrUnavailable.
func (e *Engine) UpdateContainer(ctx context.Context, id string, limits Limits) error {
	what := "update container " + id
	if err := limits.Check(); err != nil {
		return about(what, err)
	}
	return e.do(ctx, OpUpdateContainer, what, func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerUpdate(ctx, id, container.UpdateConfig{Resources: limits.update()})
		return reclass(err, errdefs.IsConflict, errdefs.ErrFailedPrecondition)
	})
}
