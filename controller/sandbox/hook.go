package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// HookWait is the time since which agboxd has waited for the hook with this index.
type HookWait struct {
	Index int
	At    time.Time
}

// maxLastOutput is the number of bytes of the output of a failed hook or container that its error message includes.
const maxLastOutput = 600

// Hook is one hook of a spec.
type Hook struct {
	Service *agboxv1.ServiceSpec
	Number  int // the number within its service, from 1
	Line    string
}

// HookAt returns the hook with that index among all hooks of the spec; false: there is none.
func HookAt(spec *agboxv1.CreateSpec, index int) (Hook, bool) {
	for _, svc := range spec.GetRequiredServices() {
		hooks := svc.GetPostStartOnPrimary()
		if index < len(hooks) {
			return Hook{svc, index + 1, hooks[index]}, true
		}
		index -= len(hooks)
	}
	return Hook{}, false
}

// HookNonce returns a secret that nothing in the container can know, because the store's UUID is not visible there. It is computed, so a
// started hook is found again without a record of its own.
func HookNonce(instanceID string, sb store.Sandbox, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "hook\x00%s\x00%s\x00%d\x00%d", instanceID, sb.ID, sb.CreatedAt.UnixNano(), index))
	return hex.EncodeToString(sum[:16])
}

// observeHook reads the journal of the next hook of a create.
func (r *Reader) observeHook(v View, w *plan.World) error {
	rec, sb := v.Record, v.Sandbox
	creating := rec.Creating() && rec.WantsRun()
	index := int(rec.Progress.GetHooksDone())
	hook, ok := HookAt(sb.Spec, index)
	if !creating || !ok {
		return nil
	}
	h := &plan.Hook{Index: index, Service: hook.Service.GetName(), Number: hook.Number}
	w.Hook = h
	status, err := r.o.Files.Status(sb.ID, execid.ForHook(index), HookNonce(r.o.Store.InstanceID(), sb, index))
	if errdefs.IsNotFound(err) {
		return nil // its directories do not exist yet
	}
	if err != nil {
		return fmt.Errorf("read the journal of hook %d: %w", index, err)
	}
	j := status.Journal
	h.Phase, h.ExitCode, h.Cancelled, h.Stopped = status.Phase, j.ExitCode, j.Cancelled, j.Stopped
	if j.StartedAtNanos != 0 {
		h.StartedAt = time.Unix(0, j.StartedAtNanos)
	}
	if j.ErrorCode != "" {
		h.Error = j.Error
	}
	if h.Memory = plan.Meanwhile(j.OOMKills, j.OOMLimitBytes); j.OOM {
		h.Memory = ": " + plan.OutOfMemory(j.OOMLimitBytes)
	}
	if h.Since = r.o.Hook(rec.ID).since(index); h.Since.IsZero() && h.Phase == execphase.Running {
		h.Since = v.At.Now
	}
	if h.Phase == execphase.Ended && (h.ExitCode != 0 || h.Cancelled || h.Stopped) {
		h.Output = message.Redact(r.endOf(sb.ID, execid.ForHook(index)), hook.Service.GetEnvs(), sb.Spec.GetEnvs(), r.o.Files.SecretValues(sb.ID, ""))
	}
	return nil
}

// endOf returns the end of the output of an exec or of the main process as text: stderr if there is any, else stdout.
func (r *Reader) endOf(sandboxID, execID string) string {
	for _, stderr := range []bool{true, false} {
		out, err := r.o.Files.Tail(sandboxID, execID, stderr, maxLastOutput)
		if text := message.Printable(out); err == nil && text != "" {
			return text
		}
	}
	return ""
}

func (p *pass) runHook(index int) error {
	hook, ok := HookAt(p.sb.Spec, index)
	if !ok {
		return fmt.Errorf("hook %d is not in the spec: %w", index, errdefs.ErrInternal)
	}
	now := p.o.Clock.Now()
	p.scratch.Change(p.rec.ID, func(m *memory) { m.hook.start(index, now) })
	return p.o.Files.Start(p.rec.ID, execjournal.Request{
		ExecID: execid.ForHook(index), Nonce: HookNonce(p.o.Store.InstanceID(), p.sb, index), Command: []string{"sh", "-c", hook.Line},
		Env: hook.Service.GetEnvs(), LogLimitBytes: p.set.LogLimit, LogLimitAction: execjournal.LogLimitDrop,
		CancelGraceMillis: p.set.CancelGrace.Milliseconds(),
	})
}

func (p *pass) cancelHook(index int) error {
	return p.o.Files.Cancel(p.rec.ID, execid.ForHook(index), HookNonce(p.o.Store.InstanceID(), p.sb, index))
}
