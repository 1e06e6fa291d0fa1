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
// they stand still. One that is frozen is a success. A frozen one can be stopped, killed and removed: StopContainer has
// the engine send the signal and thaw it, with ActionUnpause before ActionDie; the other two end it as it is. It survives
// a restart of the engine frozen where containers survive at all.
//
// Errors: ErrNotFound; ErrFailedPrecondition when it does not run; ErrInternal when the kernel does not freeze it;
// ErrUnavailable.
func (e *Engine) PauseContainer(ctx context.Context, id string) error {
	err := e.do(ctx, OpPauseContainer, func(ctx context.Context, c *client.Client) error {
		err := c.ContainerPause(ctx, id)
		if err == nil || !isRefusal(err) {
			return err
		}
		state, lookErr := stateOf(ctx, c, id)
		switch {
		case lookErr != nil:
			return err
		case state.Paused:
			return nil
		case !state.Running:
			return precondition(err)
		}
		// The runtime refuses to freeze what is frozen. After the thaw it takes it.
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

// UnpauseContainer thaws a frozen container. One that runs is a success; where its engine is on this host it is made sure
// that the kernel agrees: an engine that was killed amid a pause, with live-restore, takes a frozen container for a running
// one, and has no call that thaws it; one that was killed amid an unpause takes a running container for a frozen one, and
// refuses to thaw it forever (both seen, 20.10).
//
// Errors: ErrNotFound; ErrFailedPrecondition when it does not run; ErrPermissionDenied when the engine is wrong about what the
// kernel has frozen, and only root may mend that; ErrInternal when the engine did not manage;
// ErrUnavailable.
func (e *Engine) UnpauseContainer(ctx context.Context, id string) error {
	err := e.do(ctx, OpUnpauseContainer, func(ctx context.Context, c *client.Client) error {
		err := c.ContainerUnpause(ctx, id)
		if err == nil || !isRefusal(err) {
			return err
		}
		state, lookErr := stateOf(ctx, c, id)
		switch {
		case lookErr != nil:
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

// unpauseThawed unpauses a container that the runtime has thawed and the engine takes for a frozen one: the runtime refuses
// to thaw what is thawed, so it is frozen for that. Of one that the kernel has frozen, or that can't be seen, the result is
// refusal.
func (e *Engine) unpauseThawed(ctx context.Context, c *client.Client, state containerState, refusal error) error {
	frozen, err := e.freezer.freeze(state.Pid, state.id)
	if err != nil {
		return err
	}
	if !frozen {
		return refusal
	}
	if err = c.ContainerUnpause(ctx, state.id); err != nil {
		_, thawErr := e.freezer.thaw(state.Pid, state.id) // as it was
		return errors.Join(err, thawErr)
	}
	return nil
}

// isRefusal reports whether the engine has answered about a container that exists. The class says no more: 20.10 answers
// an unpause of what is not paused, running or not, as it answers its own failures.
func isRefusal(err error) bool { return errdefs.IsConflict(err) || errdefs.IsInternal(err) }

// precondition makes err, of whatever class, an ErrFailedPrecondition.
func precondition(err error) error { return &classed{err: err, class: errdefs.ErrFailedPrecondition} }

// containerState is the state of a container with its full ID.
type containerState struct {
	*container.State
	id string
}

// stateOf waits for a pause of the container that is under way: the engine holds its lock meanwhile.
func stateOf(ctx context.Context, c *client.Client, id string) (containerState, error) {
	raw, err := c.ContainerInspect(ctx, id)
	if err != nil {
		return containerState{}, err
	}
	if raw.ContainerJSONBase == nil || raw.State == nil {
		return containerState{}, fmt.Errorf("inspection without a state: %w", errdefs.ErrInternal)
	}
	return containerState{raw.State, raw.ID}, nil
}
