package recovery

import (
	"fmt"
	"strings"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// verdict is what a sandbox is and what it should be doing.
type verdict struct {
	state         agboxv1.SandboxState
	want          storev1.RunState
	attempt       storev1.Attempt
	code, message string
	progress      *storev1.Progress
	life          *storev1.EngineRun
}

// How a container ends that a stop of ours ended: the shim's own code when there is no main process, or one that heeded
// TERM.
const (
	codeEnded      = 0
	codeTerminated = 143
	// codeUnseen is the engine's for an end that it did not see.
	codeUnseen = 255
)

// judge goes by the primary. Where several things are possible it takes the one that neither removes anything nor runs what
// may have been stopped on request.
func (r *rebuild) judge() verdict {
	c := r.p.primary
	switch {
	case c == nil:
		return r.failed(plan.CodeContainerMissing, "the record was lost, and no primary container was found")
	case c.State == dockerx.StateCreated && (r.wasUp || r.hooks().begun()):
		return r.failed(plan.CodeContainerMissing, "the primary container that had run is gone")
	case c.State == dockerx.StateCreated:
		return r.pending(storev1.Attempt_ATTEMPT_CREATE)
	case c.State == dockerx.StateDead, c.State == dockerx.StateRemoving:
		return r.failed(plan.CodeContainerMissing, "the primary container was being removed")
	case c.State == dockerx.StatePaused:
		v := r.up(agboxv1.SandboxState_SANDBOX_STATE_PAUSED, storev1.RunState_RUN_STATE_PAUSE)
		v.progress.Frozen = true
		return v
	case c.State == dockerx.StateExited:
		return r.ended(*c)
	}
	return r.running(*c)
}

func (r *rebuild) failed(code, message string) verdict {
	v := verdict{
		state: agboxv1.SandboxState_SANDBOX_STATE_FAILED, want: storev1.RunState_RUN_STATE_RUN, code: code, message: message,
		progress: r.progress(), life: r.in.EngineRun,
	}
	return v
}

func (r *rebuild) pending(attempt storev1.Attempt) verdict {
	v := verdict{
		state: agboxv1.SandboxState_SANDBOX_STATE_PENDING, want: storev1.RunState_RUN_STATE_RUN, attempt: attempt,
		progress: r.progress(), life: r.in.EngineRun,
	}
	v.progress.HooksDone = r.hooks().done
	return v
}

// up is the verdict on one that has been READY in this run.
func (r *rebuild) up(state agboxv1.SandboxState, want storev1.RunState) verdict {
	v := verdict{state: state, want: want, attempt: storev1.Attempt_ATTEMPT_RESUME, progress: r.progress(), life: r.in.EngineRun}
	v.progress.PrimaryStarted, v.progress.Released, v.progress.Copied = true, true, true
	for _, c := range r.p.services {
		if s := v.progress.Services[serviceName(c)]; c.Running && c.Health != dockerx.HealthStarting && c.Health != dockerx.HealthUnhealthy {
			s.Mark = storev1.ServiceMark_SERVICE_MARK_READY
		}
	}
	return v
}

// running is a primary that was at least started.
func (r *rebuild) running(c dockerx.ContainerDetail) verdict {
	h := r.hooks()
	released := r.f.Released || !gated(c)
	switch {
	case h.cutOff:
		return r.failed(plan.CodeContainerNotRunning, fmt.Sprintf("the record was lost while hook %d of the create ran", h.done+1))
	case released && (h.done == h.total || h.done == 0):
		if h.done < h.total { // its journals went, or it has run none: no hook runs twice
			r.guess("hooks_done")
		}
		return r.up(agboxv1.SandboxState_SANDBOX_STATE_READY, storev1.RunState_RUN_STATE_RUN)
	case h.done < h.total && c.FinishedAt.IsZero(): // its first run
		v := r.pending(storev1.Attempt_ATTEMPT_CREATE)
		v.progress.PrimaryStarted, v.progress.Released = true, released
		return v
	}
	v := r.pending(storev1.Attempt_ATTEMPT_RESUME)
	v.progress.PrimaryStarted, v.progress.HooksDone = true, h.total
	return v
}

// ended is a primary that has run.
func (r *rebuild) ended(c dockerx.ContainerDetail) verdict {
	switch {
	case c.ExitCode == codeEnded || c.ExitCode == codeTerminated:
		r.guess("state") // also a demoted pause ends so, and a main process that was done
		return r.stopped()
	case c.OOMKilled:
		return r.failed(plan.CodeContainerOOM, "the primary container was "+plan.OutOfMemory(c.Limits.MemoryBytes)+", before the record was lost")
	case r.takenByDeath(c):
		v := r.up(agboxv1.SandboxState_SANDBOX_STATE_READY, storev1.RunState_RUN_STATE_RUN)
		v.life = r.anotherLife()
		return v
	}
	policy := plan.RestartPolicy(r.spec.GetRestartPolicy())
	if c.ExitCode != 137 && (policy == plan.RestartAlways || policy == plan.RestartOnFailure) {
		r.guess("state") // a main process has codes of its own for a stop, too
		return r.stopped()
	}
	return r.failed(plan.CodeContainerDied, fmt.Sprintf("the primary container exited with code %d before the record was lost", c.ExitCode))
}

func (r *rebuild) stopped() verdict {
	v := r.up(agboxv1.SandboxState_SANDBOX_STATE_STOPPED, storev1.RunState_RUN_STATE_STOP)
	v.progress = &storev1.Progress{HooksDone: r.hooks().total}
	return v
}

// takenByDeath reports that the engine's or the host's death ended a primary: the engine did not see its end, or found it
// dead in a life that it can't have lived to see. A stop that had come to its end is told by its code before.
func (r *rebuild) takenByDeath(c dockerx.ContainerDetail) bool {
	if c.ExitCode == codeUnseen && len(r.spec.GetCommand()) == 0 {
		return true // the shim has no such code of its own
	}
	since := r.in.LifeSince
	return !since.IsZero() && c.StartedAt.Before(since) && !c.FinishedAt.Before(since)
}

// anotherLife is one that has ended: of the engine where the host's is known to go on.
func (r *rebuild) anotherLife() *storev1.EngineRun {
	const lost = "lost with the record"
	life := r.in.EngineRun
	if life.GetEngineStart() == "" {
		return &storev1.EngineRun{BootId: lost, EngineStart: lost}
	}
	return &storev1.EngineRun{BootId: life.GetBootId(), EngineStart: lost}
}

// progress notes what was started.
func (r *rebuild) progress() *storev1.Progress {
	p := &storev1.Progress{HooksDone: r.hooks().total}
	for _, c := range r.p.services {
		if p.Services == nil {
			p.Services = map[string]*storev1.ServiceProgress{}
		}
		p.Services[serviceName(c)] = &storev1.ServiceProgress{Started: c.State != dockerx.StateCreated}
	}
	if c := r.p.primary; c != nil && c.State != dockerx.StateCreated {
		p.PrimaryStarted, p.Copied = true, true // copies are on record before the first start
	}
	return p
}

// gated reports whether PID 1 waits for its release; those of the first releases did not.
func gated(c dockerx.ContainerDetail) bool {
	for _, arg := range c.Entrypoint {
		switch arg {
		case "--gated":
			return true
		case "--":
			return false
		}
	}
	return false
}

// hookState is what the files say of the hooks of the create.
type hookState struct {
	total, done uint32
	// cutOff: the one after the last that is done was asked for, and did not end well. Its nonce went with the record, so it
	// is never known for certain.
	cutOff bool
}

func (h hookState) begun() bool { return h.done > 0 || h.cutOff }

func (r *rebuild) hooks() hookState {
	var h hookState
	for _, s := range r.spec.GetRequiredServices() {
		h.total += uint32(len(s.GetPostStartOnPrimary()))
	}
	traces := map[string]execjournal.Trace{}
	for _, t := range r.f.Traces {
		if strings.HasPrefix(t.ExecID, "_") {
			traces[t.ExecID] = t
		}
	}
	for h.done < h.total {
		t, ok := traces[plan.HookID(int(h.done))]
		if !ok {
			return h
		}
		j := t.Journal
		if j == nil || j.State != execjournal.StateEnded || j.ExitCode != 0 || j.ErrorCode != "" || j.Cancelled || j.Stopped {
			h.cutOff = true
			return h
		}
		h.done++
	}
	return h
}
