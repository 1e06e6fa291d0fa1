package plan

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
)

// Hooks is the number of all hooks.
func (w Wanted) Hooks() int {
	n := 0
	for _, s := range w.Services {
		n += s.Hooks
	}
	return n
}

// hookRecheck is how soon a hook that was told to start or to end is looked at again if its journal does not change.
const hookRecheck = 5 * time.Second

// hooks runs what is left of the hooks, one at a time. up is true when none is left. A hook that may have run is never
// run again: one that has no recorded end fails the create.
func (b *bringUp) hooks() (p Plan, up bool) {
	h := b.w.Hook
	if !b.creates || h == nil {
		return Plan{}, true
	}
	b.p.Asides = b.optional()
	b.p.Waiting = fmt.Sprintf("running hook %d of service %s", h.Number, h.Service)
	left := b.hookTime(h)
	switch h.Phase {
	case NotStarted:
		if left <= 0 {
			break
		}
		b.p.add(Step{Kind: RunHook, Service: h.Service, Index: h.Index, Reason: b.reason})
		b.p.soonest(hookRecheck)
		return b.record(), false
	case Running:
		if !h.Since.IsZero() && b.now.Sub(b.since(h.Since)) >= b.pol.HookTimeout+b.pol.CancelGrace+stopMargin {
			break // whatever holds its lock heeds nobody
		}
		if left <= 0 {
			b.p.add(Step{Kind: CancelHook, Service: h.Service, Index: h.Index, Reason: b.reason})
			left = hookRecheck
		}
		b.p.soonest(left)
		return b.record(), false
	case Ended:
		if h.ExitCode == 0 && h.Error == "" && !h.Cancelled {
			return b.hookDone(h), false
		}
	}
	return b.fail(CodeCreateFailed, h.failure(b.pol.HookTimeout)), false
}

// hookTime is what is left of a hook's time. It ends also for one that does not start, and for one whose container lies
// about it.
func (b *bringUp) hookTime(h *Hook) time.Duration {
	since := b.now
	for _, t := range []time.Time{h.Since, h.StartedAt} {
		if !t.IsZero() && t.Before(since) {
			since = t
		}
	}
	return b.since(since).Add(b.pol.HookTimeout).Sub(b.now)
}

// hookDone records a good end; the commit brings about the next pass.
func (b *bringUp) hookDone(h *Hook) Plan {
	b.p.add(Step{Kind: EndHook, Service: h.Service, Index: h.Index, Reason: b.reason})
	b.progress.HooksDone = uint32(h.Index) + 1
	b.p.After.Progress = proto.CloneOf(b.progress)
	return b.p
}

// failure is one sentence, with the end of what the hook printed.
func (h *Hook) failure(timeout time.Duration) string {
	what := fmt.Sprintf("post_start_on_primary hook %d of service %s ", h.Number, h.Service)
	switch {
	case h.Phase == NotStarted:
		return what + fmt.Sprintf("was not started within %s (runtime.hook_timeout)", timeout)
	case h.Phase == Running:
		return what + fmt.Sprintf("did not end within %s (runtime.hook_timeout), nor when it was cancelled", timeout)
	case h.Phase != Ended:
		return what + "left no end behind: its supervisor or the container died"
	case h.Error != "":
		what += "could not be started: " + h.Error
	case h.Cancelled:
		what += fmt.Sprintf("did not end within %s (runtime.hook_timeout)", timeout)
	default:
		what += fmt.Sprintf("exited with code %d", h.ExitCode)
	}
	if out := strings.TrimSpace(h.Output); out != "" {
		what += "; its output ends: " + out
	}
	return what
}
