package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// maxHookOutput is how much of a failed hook's output its message has room for.
const maxHookOutput = 600

// hookCommand is one hook of a spec.
type hookCommand struct {
	service *agboxv1.ServiceSpec
	number  int // of that service's, from 1
	line    string
}

// hookAt returns the hook with that index among all.
func hookAt(spec *agboxv1.CreateSpec, index int) (hookCommand, bool) {
	for _, svc := range spec.GetRequiredServices() {
		hooks := svc.GetPostStartOnPrimary()
		if index < len(hooks) {
			return hookCommand{svc, index + 1, hooks[index]}, true
		}
		index -= len(hooks)
	}
	return hookCommand{}, false
}

// hookNonce is a secret that nobody in the container knows: the store's UUID is not seen there. It is computed, so that a
// hook that was begun is found again without a record of its own.
func (c *Controller) hookNonce(sb store.Sandbox, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "hook\x00%s\x00%s\x00%d\x00%d", c.cfg.Store.InstanceID(), sb.ID, sb.CreatedAt.UnixNano(), index))
	return hex.EncodeToString(sum[:16])
}

// observeHook looks at the journal of the next hook of a create.
func (c *Controller) observeHook(rec plan.Record, sb store.Sandbox) (*plan.Hook, error) {
	creating := rec.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING && rec.Desired == storev1.RunState_RUN_STATE_RUN &&
		rec.Attempt == storev1.Attempt_ATTEMPT_CREATE
	index := int(rec.Progress.GetHooksDone())
	hook, ok := hookAt(sb.Spec, index)
	if !creating || !ok {
		c.hooks.forget(rec.ID)
		return nil, nil
	}
	h := &plan.Hook{Index: index, Service: hook.service.GetName(), Number: hook.number}
	status, err := c.cfg.Execs.Look(sb.ID, plan.HookID(index), c.hookNonce(sb, index))
	if errdefs.IsNotFound(err) {
		return h, nil // its directories are not there yet
	}
	if err != nil {
		return nil, fmt.Errorf("look at hook %d: %w", index, err)
	}
	j := status.Journal
	h.Phase, h.ExitCode, h.Cancelled = phaseOf(status), j.ExitCode, j.Cancelled || j.Stopped
	if j.StartedAtNanos != 0 {
		h.StartedAt = time.Unix(0, j.StartedAtNanos)
	}
	if j.ErrorCode != "" {
		h.Error = j.Error
	}
	if h.Phase == plan.Running {
		c.hooks.begin(rec.ID, index)
	}
	h.Since = c.hooks.since(rec.ID, index)
	if h.Phase == plan.Ended && (h.ExitCode != 0 || h.Cancelled) {
		h.Output = message.Redact(c.hookOutput(sb.ID, plan.HookID(index)), hook.service.GetEnvs(), sb.Spec.GetEnvs())
	}
	return h, nil
}

// hookOutput is the end of what a hook printed, as text; errors before anything else.
func (c *Controller) hookOutput(sandboxID, execID string) string {
	for _, stderr := range []bool{true, false} {
		out, err := c.cfg.Execs.Tail(sandboxID, execID, stderr, maxHookOutput)
		if text := message.Printable(out); err == nil && text != "" {
			return text
		}
	}
	return ""
}

func (p *pass) runHook(index int) error {
	hook, ok := hookAt(p.sb.Spec, index)
	if !ok {
		return fmt.Errorf("hook %d is not in the spec: %w", index, errdefs.ErrInternal)
	}
	p.hooks.begin(p.rec.ID, index)
	return p.cfg.Execs.Start(p.rec.ID, execjournal.Request{
		ExecID: plan.HookID(index), Nonce: p.hookNonce(p.sb, index), Command: []string{"sh", "-c", hook.line},
		Env: hook.service.GetEnvs(), LogLimitBytes: p.set.LogLimit, LogLimitAction: execjournal.LogLimitDrop,
		CancelGraceMillis: p.set.CancelGrace.Milliseconds(),
	})
}

func (p *pass) cancelHook(_ context.Context, index int) error {
	return p.cfg.Execs.Cancel(p.rec.ID, plan.HookID(index), p.hookNonce(p.sb, index))
}

// hookClock keeps since when this daemon waits for the hook of each create. Another daemon starts the wait over: that bounds the wait
// too, and needs no trust in what the container writes nor in the host's clock.
type hookClock struct {
	now func() time.Time

	mu    sync.Mutex
	begun map[string]hookBegin
}

type hookBegin struct {
	index int
	at    time.Time
}

func newHookClock(now func() time.Time) *hookClock {
	return &hookClock{now: now, begun: map[string]hookBegin{}}
}

// begin notes the first time that it is called for a hook.
func (k *hookClock) begin(sandboxID string, index int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b, ok := k.begun[sandboxID]; !ok || b.index != index {
		k.begun[sandboxID] = hookBegin{index, k.now()}
	}
}

// since is zero for a hook that was not begun.
func (k *hookClock) since(sandboxID string, index int) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b := k.begun[sandboxID]; b.index == index {
		return b.at
	}
	return time.Time{}
}

func (k *hookClock) forget(sandboxID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.begun, sandboxID)
}
