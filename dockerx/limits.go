package dockerx

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

const (
	// cpuPeriod is the kernel's period for CPU quotas in microseconds, and the engine's own choice.
	cpuPeriod = 100_000
	// nanoCPUsPerQuota is one microsecond of that period.
	nanoCPUsPerQuota = 1_000_000_000 / cpuPeriod
	// minNanoCPUs is the engine's least: a quota of a millisecond.
	minNanoCPUs = 1000 * nanoCPUsPerQuota
	// unlimitedBytes is the kernel's own word for no limit: the largest number of whole pages. It is used where a limit is
	// taken back, since the engine takes neither 0 (leave it as it is) nor -1 (too small).
	unlimitedBytes = 0x7FFFFFFFFFFFF000
)

// Limits are what can be changed while a container exists. 0: no limit.
type Limits struct {
	// NanoCPUs is at least 10,000,000 (0.01 CPU), and kept in steps of 10,000: see Rounded.
	NanoCPUs int64
	// MemoryBytes is at least 6 MiB. Swap is not added on top where the engine can account for it.
	MemoryBytes int64
	Pids        int64
}

// Rounded returns l as an inspection of a container with these limits shows it.
func (l Limits) Rounded() Limits {
	l.NanoCPUs -= l.NanoCPUs % nanoCPUsPerQuota
	return l
}

// Check refuses what UpdateContainer refuses without asking the engine. Errors: ErrInvalidArgument.
func (l Limits) Check() error {
	if l.NanoCPUs < 0 || l.MemoryBytes < 0 || l.Pids < 0 {
		return fmt.Errorf("limit below 0: %+v: %w", l, errdefs.ErrInvalidArgument)
	}
	if l.NanoCPUs > 0 && l.NanoCPUs < minNanoCPUs {
		return fmt.Errorf("limit of %d nano CPUs: the least is %d: %w", l.NanoCPUs, minNanoCPUs, errdefs.ErrInvalidArgument)
	}
	return nil
}

// resources are the limits of a new container. The quota is used and not the engine's NanoCPUs, since that one can be
// changed later but not taken back (20.10).
func (l Limits) resources() container.Resources {
	r := container.Resources{Memory: l.MemoryBytes, MemorySwap: l.MemoryBytes} // the engine drops the latter where it can't
	if l.NanoCPUs > 0 {
		r.CPUPeriod, r.CPUQuota = cpuPeriod, l.NanoCPUs/nanoCPUsPerQuota
	}
	if l.Pids > 0 {
		r.PidsLimit = &l.Pids
	}
	return r
}

// engineShmBytes is the size that the engine gives /dev/shm by itself.
const engineShmBytes = 64 << 20

// shmBytes is the size of /dev/shm in a new container; 0: the engine's own. What is in it counts as memory and stays when the
// processes that wrote it have been killed, so it is at most half of the limit. It can't be changed later.
func (l Limits) shmBytes() int64 {
	if l.MemoryBytes == 0 {
		return 0
	}
	return min(engineShmBytes, l.MemoryBytes/2)
}

// update are the limits of a container that may have others: each is sent, and 0 as what takes a limit back.
func (l Limits) update() container.Resources {
	r := l.resources()
	r.PidsLimit = &l.Pids // 0: no limit, as nil would leave it
	if l.NanoCPUs == 0 {
		r.CPUPeriod, r.CPUQuota = cpuPeriod, -1
	}
	if l.MemoryBytes == 0 {
		r.Memory, r.MemorySwap = unlimitedBytes, unlimitedBytes
	}
	return r
}

// limitsOf reads what resources and update wrote, and what others set in the engine's other way.
func limitsOf(r *container.Resources) Limits {
	l := Limits{NanoCPUs: r.NanoCPUs}
	if period := r.CPUPeriod; r.CPUQuota > 0 {
		if period == 0 {
			period = cpuPeriod
		}
		l.NanoCPUs = int64(float64(r.CPUQuota) / float64(period) * 1e9)
		if period == cpuPeriod {
			l.NanoCPUs = r.CPUQuota * nanoCPUsPerQuota
		}
	}
	if r.Memory > 0 && r.Memory < unlimitedBytes {
		l.MemoryBytes = r.Memory
	}
	if r.PidsLimit != nil && *r.PidsLimit > 0 {
		l.Pids = *r.PidsLimit
	}
	return l
}

// UpdateContainer gives a container these limits, whether it runs or not; they stay over restarts. All three are set, and
// either all change or none does. A running container whose memory limit is taken back has no swap.
//
// Errors: ErrNotFound; ErrInvalidArgument for a limit that the engine does not take, such as memory below 6 MiB;
// ErrFailedPrecondition when somebody else has limited the CPUs in another way (docker update --cpus); ErrInternal when
// the kernel refuses, above all memory below what the container uses now (20.10, with the text of runc; nothing changed);
// ErrUnavailable.
func (e *Engine) UpdateContainer(ctx context.Context, id string, limits Limits) error {
	if err := limits.Check(); err != nil {
		return fmt.Errorf("update container %s: %w", id, err)
	}
	err := e.do(ctx, OpUpdateContainer, func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerUpdate(ctx, id, container.UpdateConfig{Resources: limits.update()})
		return reclass(err, errdefs.IsConflict, errdefs.ErrFailedPrecondition)
	})
	if err != nil {
		return fmt.Errorf("update container %s: %w", id, err)
	}
	return nil
}
