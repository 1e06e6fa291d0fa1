package dockerx

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// PauseContainer freezes all processes of a running container, which keep their memory and connections, and returns when
// they are frozen. A frozen container is a success. It can be stopped, killed and removed: StopContainer makes the engine
// send the signal and thaw it, with ActionUnpause before ActionDie; the other two end it while frozen. It stays frozen over
// a restart of the engine with live-restore.
//
// Errors: ErrNotFound; ErrFailedPrecondition when it does not run; ErrInternal when the kernel does not freeze it;
// ErrUnavailable.
func (e *Engine) PauseContainer(ctx context.Context, id string) error {
	err := e.do(ctx, OpPauseContainer, func(ctx context.Context, c *client.Client) error {
		err := c.ContainerPause(ctx, id)
		if err == nil || !isRefusal(err) {
			return err
		}
		state, inspectErr := stateOf(ctx, c, id)
		switch {
		case inspectErr != nil:
			return err
		case state.Paused:
			return nil
		case !state.Running:
			return precondition(err)
		}
		// The runtime refuses to freeze a frozen container; after a thaw it accepts.
		if thawed, _ := e.freezer.thaw(state.Pid, state.id); thawed {
			return c.ContainerPause(ctx, id)
		}
		return reclass(err, errdefs.IsConflict, errdefs.ErrFailedPrecondition) // being restarted
	})
	if err != nil {
		return fmt.Errorf("pause container %s: %w", id, err)
	}
	return nil
}

// UnpauseContainer thaws a frozen container. A running one is a success; where its engine is on this host, the kernel's
// freezer is checked, too: an engine with live-restore that was killed during a pause reports a frozen container as running,
// and no call of it thaws the container; one that was killed during an unpause reports a running container as frozen, and
// every unpause fails (both observed with 20.10).
//
// Errors: ErrNotFound; ErrFailedPrecondition when it does not run; ErrPermissionDenied when engine and kernel disagree about
// the freeze and only root can repair that; ErrInternal when the engine failed; ErrUnavailable.
func (e *Engine) UnpauseContainer(ctx context.Context, id string) error {
	err := e.do(ctx, OpUnpauseContainer, func(ctx context.Context, c *client.Client) error {
		err := c.ContainerUnpause(ctx, id)
		if err == nil || !isRefusal(err) {
			return err
		}
		state, inspectErr := stateOf(ctx, c, id)
		switch {
		case inspectErr != nil:
			return err
		case state.Paused:
			return e.unpauseThawed(ctx, c, state, err)
		case !state.Running:
			return precondition(err)
		}
		_, err = e.freezer.thaw(state.Pid, state.id)
		return err
	})
	if err != nil {
		return fmt.Errorf("unpause container %s: %w", id, err)
	}
	return nil
}

// unpauseThawed unpauses a container that the kernel has thawed and the engine believes frozen. The runtime refuses to thaw
// a running container, so unpauseThawed freezes it first. It returns refusal for a container that the kernel has frozen, or
// whose cgroup is not visible.
func (e *Engine) unpauseThawed(ctx context.Context, c *client.Client, state containerState, refusal error) error {
	frozen, err := e.freezer.freeze(state.Pid, state.id)
	if err != nil {
		return err
	}
	if !frozen {
		return refusal
	}
	if err = c.ContainerUnpause(ctx, state.id); err != nil {
		_, thawErr := e.freezer.thaw(state.Pid, state.id) // restores the thawed state
		return errors.Join(err, thawErr)
	}
	return nil
}

// isRefusal reports whether the engine has answered about an existing container. The class says no more: 20.10 answers
// an unpause of a container that is not paused, running or not, as it answers its own failures.
func isRefusal(err error) bool { return errdefs.IsConflict(err) || errdefs.IsInternal(err) }

// precondition makes err, of any class, an ErrFailedPrecondition.
func precondition(err error) error { return &classed{err: err, class: errdefs.ErrFailedPrecondition} }

// containerState is the state of a container with its full ID.
type containerState struct {
	*container.State
	id string
}

// stateOf blocks during a pause of the container: the engine holds its lock meanwhile.
func stateOf(ctx context.Context, c *client.Client, id string) (containerState, error) {
	raw, err := c.ContainerInspect(ctx, id)
	if err != nil {
		return containerState{}, err
	}
	if raw.ContainerJSONBase == nil || raw.State == nil {
		return containerState{}, fmt.Errorf("the engine's inspection of container %s has no state: %w", id, errdefs.ErrInternal)
	}
	return containerState{raw.State, raw.ID}, nil
}
