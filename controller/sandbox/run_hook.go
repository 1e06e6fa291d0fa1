package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func (p *pass) runHook(index int) error {
	hook, ok := HookAt(p.sb.Spec, index)
	if !ok {
		return fmt.Errorf("hook %d is not in the spec: %w", index, errdefs.ErrInternal)
	}
	now := p.o.Clock.Now()
	p.scratch.Change(p.rec.ID, func(m *memory) { m.hook.begin(index, now) })
	return p.o.Files.Start(p.rec.ID, execjournal.Request{
		ExecID: execid.ForHook(index), Nonce: HookNonce(p.o.Store.InstanceID(), p.sb, index), Command: []string{"sh", "-c", hook.Line},
		Env: hook.Service.GetEnvs(), LogLimitBytes: p.set.LogLimit, LogLimitAction: execjournal.LogLimitDrop,
		CancelGraceMillis: p.set.CancelGrace.Milliseconds(),
	})
}

func (p *pass) cancelHook(_ context.Context, index int) error {
	return p.o.Files.Cancel(p.rec.ID, execid.ForHook(index), HookNonce(p.o.Store.InstanceID(), p.sb, index))
}
