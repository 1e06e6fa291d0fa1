package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func (p *pass) runHook(index int) error {
	hook, ok := sandbox.HookAt(p.sb.Spec, index)
	if !ok {
		return fmt.Errorf("hook %d is not in the spec: %w", index, errdefs.ErrInternal)
	}
	p.hooks.begin(p.rec.ID, index)
	return p.cfg.Execs.Start(p.rec.ID, execjournal.Request{
		ExecID: plan.HookID(index), Nonce: sandbox.HookNonce(p.cfg.Store.InstanceID(), p.sb, index), Command: []string{"sh", "-c", hook.Line},
		Env: hook.Service.GetEnvs(), LogLimitBytes: p.set.LogLimit, LogLimitAction: execjournal.LogLimitDrop,
		CancelGraceMillis: p.set.CancelGrace.Milliseconds(),
	})
}

func (p *pass) cancelHook(_ context.Context, index int) error {
	return p.cfg.Execs.Cancel(p.rec.ID, plan.HookID(index), sandbox.HookNonce(p.cfg.Store.InstanceID(), p.sb, index))
}

// hookClock keeps since when this daemon waits for the hook of each create. Another daemon starts the wait over: that bounds the wait
// too, and needs no trust in what the container writes nor in the host's clock.
type hookClock struct {
	now func() time.Time

	mu    sync.Mutex
	begun map[string]sandbox.HookWait
}

func newHookClock(now func() time.Time) *hookClock {
	return &hookClock{now: now, begun: map[string]sandbox.HookWait{}}
}

// begin notes the first time that it is called for a hook.
func (k *hookClock) begin(sandboxID string, index int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b, ok := k.begun[sandboxID]; !ok || b.Index != index {
		k.begun[sandboxID] = sandbox.HookWait{Index: index, At: k.now()}
	}
}

// put records the hook that a sandbox waits for.
func (k *hookClock) put(sandboxID string, b sandbox.HookWait) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begun[sandboxID] = b
}

// get returns the hook of a sandbox that is waited for; the zero value: none.
func (k *hookClock) get(sandboxID string) sandbox.HookWait {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.begun[sandboxID]
}

// since is zero for a hook that was not begun.
func (k *hookClock) since(sandboxID string, index int) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b := k.begun[sandboxID]; b.Index == index {
		return b.At
	}
	return time.Time{}
}

func (k *hookClock) forget(sandboxID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.begun, sandboxID)
}
