package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agbox/agbox/internal/wait"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// Bounds of the wait of ConfirmEngine.
const (
	// confirmWait is longer than the two looks that prove an absence.
	confirmWait = looksApart + 5*time.Second
	confirmPoll = time.Second
)

// ConfirmEngine accepts the engine now in place as ours. Sandboxes that vanished together are judged then as if each had vanished
// alone, also by a later daemon. It gives up only what the engine showed neither at the call nor at any look after it, in one life of
// the engine, and waits up to 15 s for the looks that prove each absence. Errors: ErrUnavailable, and that of ctx; then the engine may be
// confirmed, and nothing is given up.
func (c *Controller) ConfirmEngine(ctx context.Context) (*agboxv1.ConfirmEngineResponse, error) {
	info, err := c.link.confirm(ctx)
	if err != nil {
		return nil, err
	}
	engine, err := c.cfg.Store.EngineIdentity(ctx)
	if err != nil {
		return nil, err
	}
	v := vanishing{c, c.cfg.run(info), engine}
	held, gone, err := v.await(ctx)
	if err != nil {
		return nil, fmt.Errorf("prove which sandboxes vanished: %w", err)
	}
	if err := c.giveUp(ctx, held); err != nil {
		return nil, err
	}
	out := &agboxv1.ConfirmEngineResponse{EngineId: info.EngineID}
	for _, sb := range gone {
		if v.decided(ctx, sb) {
			out.GivenUp = append(out.GivenUp, sb.ID)
		} else {
			out.Undecided = append(out.Undecided, sb.ID)
		}
	}
	return out, nil
}

// vanishing is what an engine does not show in one life.
type vanishing struct {
	*Controller
	run    *storev1.EngineRun
	engine *storev1.EngineIdentity
}

// await waits until each sandbox that the engine does not show is held, judged or seen again. gone are those that were not seen again, by
// ID; held are the confirmations of those that wait for an operator.
func (v vanishing) await(ctx context.Context) (held map[string]*storev1.GivenUp, gone []store.Sandbox, err error) {
	open, err := v.vanished(ctx, v.run, v.engine)
	if err != nil {
		return nil, nil, err
	}
	for id := range open {
		v.sandboxes.Add(id) // without an event, only the next resync would look
	}
	for deadline := time.Now().Add(confirmWait); ; {
		held = v.absences.confirmable(open, v.run, v.engine)
		if len(held) == len(open) || !time.Now().Before(deadline) {
			break
		}
		if wait.For(ctx, confirmPoll) != nil {
			return nil, nil, ctx.Err()
		}
		still, err := v.vanished(ctx, v.run, v.engine)
		if err != nil {
			return nil, nil, err
		}
		for id, sb := range open {
			if _, ok := still[id]; ok {
				continue
			}
			delete(open, id)
			if v.decided(ctx, sb) {
				gone = append(gone, sb)
			}
		}
	}
	gone = slices.AppendSeq(gone, maps.Values(open))
	slices.SortFunc(gone, func(a, b store.Sandbox) int { return strings.Compare(a.ID, b.ID) })
	return held, gone, nil
}

// decided reports whether an operator gave up a sandbox, or it FAILED because a part of it is gone. The verdict ends the confirmation, so
// that is read first.
func (v vanishing) decided(ctx context.Context, sb store.Sandbox) bool {
	if v.absences.isConfirmed(sb.ID, sb.Desired.GetObjects(), v.run, v.engine) {
		return true
	}
	sb, err := v.cfg.Store.Sandbox(ctx, sb.ID)
	return err == nil && sb.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED && sb.Progress.GetMissing()
}
