package plan

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/agbox/agbox/internal/execphase"
)

// hookRecheck is the requeue delay after a hook's start or cancel if its journal does not change.
const hookRecheck = 5 * time.Second

// hooks runs the remaining hooks, one at a time. up is true when none is left. A hook that may have run never runs again: one without a
// recorded end fails the create.
func (b *bringUp) hooks() (p Plan, up bool) {
	h := b.w.Hook
	if !b.creates || h == nil {
		return Plan{}, true
	}
	b.watchServices(false)
	b.p.Waiting = fmt.Sprintf("running hook %d of service %s", h.Number, h.Service)
	left := b.hookTime(h)
	switch h.Phase {
	case execphase.NotStarted:
		if left <= 0 {
			break
		}
		b.p.add(Step{Kind: RunHook, Service: h.Service, Index: h.Index, Reason: b.reason})
		b.p.soonest(hookRecheck)
		return b.record(), false
	case execphase.Running:
		if !h.Since.IsZero() && b.now.Sub(b.since(h.Since)) >= b.pol.HookTimeout+b.pol.CancelGrace+stopMargin {
			break // the holder of its lock ignores signals
		}
		if left <= 0 {
			b.p.add(Step{Kind: CancelHook, Service: h.Service, Index: h.Index, Reason: b.reason})
			left = hookRecheck
		}
		b.p.soonest(left)
		return b.record(), false
	case execphase.Ended:
		if h.ExitCode == 0 && h.Error == "" && !h.Cancelled && !h.Stopped {
			return b.hookDone(h), false
		}
	}
	return b.fail(CodeCreateFailed, h.failure(b.pol.HookTimeout)), false
}

// hookTime returns what is left of a hook's time. It also runs out for a hook that does not start, and for one whose container reports a
// false start time.
func (b *bringUp) hookTime(h *Hook) time.Duration {
	since := b.now
	for _, t := range []time.Time{h.Since, h.StartedAt} {
		if !t.IsZero() && t.Before(since) {
			since = t
		}
	}
	return b.since(since).Add(b.pol.HookTimeout).Sub(b.now)
}

// hookDone records a successful end; the commit enqueues the next pass.
func (b *bringUp) hookDone(h *Hook) Plan {
	b.p.add(Step{Kind: EndHook, Service: h.Service, Index: h.Index, Reason: b.reason})
	b.progress.HooksDone = uint32(h.Index) + 1
	b.p.After.Progress = proto.CloneOf(b.progress)
	return b.p
}

// EndedWithContainer says why an exec ended that the stop of its container has ended.
const EndedWithContainer = "its container was stopped from outside, or the main process ended"

// failure describes a failed hook in one sentence, with the end of its output.
func (h *Hook) failure(timeout time.Duration) string {
	what := fmt.Sprintf("post_start_on_primary hook %d of service %s ", h.Number, h.Service)
	switch {
	case h.Phase == execphase.NotStarted:
		return what + fmt.Sprintf("was not started within %s (runtime.hook_timeout)", timeout)
	case h.Phase == execphase.Running:
		return what + fmt.Sprintf("did not end within %s (runtime.hook_timeout), nor when it was cancelled", timeout)
	case h.Phase != execphase.Ended:
		return what + "left no end behind: its supervisor or the container died"
	case h.Error != "":
		what += "could not be started: " + h.Error
	case h.Cancelled:
		what += fmt.Sprintf("did not end within %s (runtime.hook_timeout)", timeout)
	case h.Stopped:
		what += "was ended: " + EndedWithContainer
	default:
		what += fmt.Sprintf("exited with code %d", h.ExitCode) + h.Memory
	}
	if out := strings.TrimSpace(h.Output); out != "" {
		what += "; its output ends: " + out
	}
	return what
}
