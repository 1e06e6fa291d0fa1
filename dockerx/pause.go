package dockerx

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// PauseContainer freezes all processes of a running container, which keep their memory and connections, and returns when
// they are frozen. A frozen container is a success. It can be stopped and removed: StopContainer makes the engine send the
// signal and thaw it, with ActionUnpause before ActionDie (one of another runtime than runc is thawed first); a removal, or another client's kill, ends it while frozen. It stays frozen over
// a restart of the engine with live-restore.
//
// Errors: ErrNotFound; ErrFailedPrecondition when it does not run; ErrInternal when the kernel does not freeze it;
// ErrUnavailable.
func (e *Engine) PauseContainer(ctx context.Context, id string) error {
	return e.do(ctx, OpPauseContainer, "pause container "+id, func(ctx context.Context, c *client.Client) error {
		ct, err := refused(ctx, c, id, c.ContainerPause(ctx, id))
		if ct == nil {
			return err
		}
		if ct.State.Paused {
			return nil
		}
		// The runtime refuses to freeze a frozen container; after a thaw it accepts.
		if thawed, _ := e.freezer.thaw(ct.State.Pid, ct.ID); thawed {
			return c.ContainerPause(ctx, id)
		}
		return reclass(err, errdefs.IsConflict, errdefs.ErrFailedPrecondition) // being restarted
	})
}

// UnpauseContainer thaws a frozen container. A running one is a success; where its engine is on this host, the kernel's
// freezer is checked, too: an engine with live-restore that was killed during a pause reports a frozen container as running,
// and no call of it thaws the container; one that was killed during an unpause reports a running container as frozen, and
// every unpause fails (both observed with 20.10).
//
// Errors: ErrNotFound; ErrFailedPrecondition when it does not run; ErrPermissionDenied when engine and kernel disagree about
// the freeze and only root can repair that; ErrInternal when the engine failed; ErrUnavailable.
func (e *Engine) UnpauseContainer(ctx context.Context, id string) error {
	return e.do(ctx, OpUnpauseContainer, "unpause container "+id, func(ctx context.Context, c *client.Client) error {
		ct, err := refused(ctx, c, id, c.ContainerUnpause(ctx, id))
		if ct == nil {
			return err
		}
		if ct.State.Paused {
			return e.unpauseThawed(ctx, c, ct, err)
		}
		_, err = e.freezer.thaw(ct.State.Pid, ct.ID)
		return err
	})
}

// unpauseThawed unpauses a container that the kernel has thawed and the engine believes frozen. The runtime refuses to thaw
// a running container, so unpauseThawed freezes it first. It returns refusal for a container that the kernel has frozen, or
// whose cgroup is not visible.
func (e *Engine) unpauseThawed(ctx context.Context, c *client.Client, ct *container.InspectResponse, refusal error) error {
	frozen, err := e.freezer.freeze(ct.State.Pid, ct.ID)
	if err != nil {
		return err
	}
	if !frozen {
		return refusal
	}
	if err = c.ContainerUnpause(ctx, ct.ID); err != nil {
		_, thawErr := e.freezer.thaw(ct.State.Pid, ct.ID) // restores the thawed state
		return errors.Join(err, thawErr)
	}
	return nil
}

// refused inspects a running container about which the engine has answered a pause or unpause with err; it returns nil, and
// the error to return, in all other cases. The class of err says no more: 20.10 answers an unpause of a container that is not
// paused, running or not, as it answers its own failures. The inspection blocks during a pause of the container: the engine
// holds its lock meanwhile.
func refused(ctx context.Context, c *client.Client, id string, err error) (*container.InspectResponse, error) {
	if !errdefs.IsConflict(err) && !errdefs.IsInternal(err) {
		return nil, err
	}
	ct, inspectErr := inspect(ctx, c, id)
	switch {
	case inspectErr != nil:
		return nil, err
	case !ct.State.Running && !ct.State.Paused:
		return nil, &classed{err: err, class: errdefs.ErrFailedPrecondition}
	}
	return ct, err
}
