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
func hookNonce(instanceID string, sb store.Sandbox, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "hook\x00%s\x00%s\x00%d\x00%d", instanceID, sb.ID, sb.CreatedAt.UnixNano(), index))
	return hex.EncodeToString(sum[:16])
}

// observeHook reads the journal of the next hook of a create.
func (o *observer) observeHook(v view, saw *sight) error {
	rec, sb := v.rec, v.sb
	creating := rec.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING && rec.Desired == storev1.RunState_RUN_STATE_RUN &&
		rec.Attempt == storev1.Attempt_ATTEMPT_CREATE
	index := int(rec.Progress.GetHooksDone())
	hook, ok := hookAt(sb.Spec, index)
	if !creating || !ok {
		saw.noHook = true
		return nil
	}
	h := &plan.Hook{Index: index, Service: hook.service.GetName(), Number: hook.number}
	saw.world.Hook = h
	status, err := o.files.Look(sb.ID, plan.HookID(index), hookNonce(o.store.InstanceID(), sb, index))
	if errdefs.IsNotFound(err) {
		return nil // its directories are not there yet
	}
	if err != nil {
		return fmt.Errorf("read the journal of hook %d: %w", index, err)
	}
	j := status.Journal
	h.Phase, h.ExitCode, h.Cancelled = phaseOf(status), j.ExitCode, j.Cancelled || j.Stopped
	if j.StartedAtNanos != 0 {
		h.StartedAt = time.Unix(0, j.StartedAtNanos)
	}
	if j.ErrorCode != "" {
		h.Error = j.Error
	}
	begun := v.hook
	if h.Phase == plan.Running {
		if begun.at.IsZero() || begun.index != index {
			begun = hookBegin{index, o.now()}
		}
		saw.hook = &begun
	}
	if begun.index == index {
		h.Since = begun.at
	}
	if h.Phase == plan.Ended && (h.ExitCode != 0 || h.Cancelled) {
		h.Output = message.Redact(o.hookOutput(sb.ID, plan.HookID(index)), hook.service.GetEnvs(), sb.Spec.GetEnvs())
	}
	return nil
}

// hookOutput is the end of what a hook printed, as text; errors before anything else.
func (o *observer) hookOutput(sandboxID, execID string) string {
	for _, stderr := range []bool{true, false} {
		out, err := o.files.Tail(sandboxID, execID, stderr, maxHookOutput)
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
		ExecID: plan.HookID(index), Nonce: hookNonce(p.cfg.Store.InstanceID(), p.sb, index), Command: []string{"sh", "-c", hook.line},
		Env: hook.service.GetEnvs(), LogLimitBytes: p.set.LogLimit, LogLimitAction: execjournal.LogLimitDrop,
		CancelGraceMillis: p.set.CancelGrace.Milliseconds(),
	})
}

func (p *pass) cancelHook(_ context.Context, index int) error {
	return p.cfg.Execs.Cancel(p.rec.ID, plan.HookID(index), hookNonce(p.cfg.Store.InstanceID(), p.sb, index))
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

// put records the hook that a sandbox waits for.
func (k *hookClock) put(sandboxID string, b hookBegin) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begun[sandboxID] = b
}

// get returns the hook of a sandbox that is waited for; the zero value: none.
func (k *hookClock) get(sandboxID string) hookBegin {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.begun[sandboxID]
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
