package recovery

import (
	"fmt"
	"slices"
	"strings"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// verdict is the derived state and desired state of a sandbox.
type verdict struct {
	state         agboxv1.SandboxState
	want          storev1.RunState
	attempt       storev1.Attempt
	code, message string
	progress      *storev1.Progress
	life          *storev1.EngineRun
}

// Exit codes after a requested stop: the shim's own code when there is no main process, or that of a main process that
// handled TERM.
const (
	codeEnded      = 0
	codeTerminated = 143
	// codeUnseen is the engine's code for an exit that it did not observe.
	codeUnseen = 255
)

// judge derives the verdict from the primary. Among several possible states it chooses the one that neither removes anything
// nor starts a sandbox that may have been stopped on request.
func (r *rebuild) judge() verdict {
	c := r.p.primary
	switch {
	case c == nil:
		return r.failed(plan.CodeContainerMissing, "the record was lost, and no primary container was found")
	case c.State == dockerx.StateCreated && (r.wasUp || r.hooks().begun()):
		return r.failed(plan.CodeContainerMissing, "the primary container that had run was removed")
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

func (r *rebuild) verdict(state agboxv1.SandboxState, want storev1.RunState, attempt storev1.Attempt) verdict {
	return verdict{state: state, want: want, attempt: attempt, progress: r.progress(), life: r.in.EngineRun}
}

func (r *rebuild) failed(code, message string) verdict {
	v := r.verdict(agboxv1.SandboxState_SANDBOX_STATE_FAILED, storev1.RunState_RUN_STATE_RUN, storev1.Attempt_ATTEMPT_UNSPECIFIED)
	v.code, v.message = code, message
	return v
}

func (r *rebuild) pending(attempt storev1.Attempt) verdict {
	v := r.verdict(agboxv1.SandboxState_SANDBOX_STATE_PENDING, storev1.RunState_RUN_STATE_RUN, attempt)
	v.progress.HooksDone = r.hooks().done
	return v
}

// up returns the verdict for a sandbox that has been READY in this run.
func (r *rebuild) up(state agboxv1.SandboxState, want storev1.RunState) verdict {
	v := r.verdict(state, want, storev1.Attempt_ATTEMPT_RESUME)
	v.progress.PrimaryStarted, v.progress.Released, v.progress.Copied = true, true, true
	for _, c := range r.p.services {
		if s := v.progress.Services[serviceName(c)]; c.Running && c.Health != dockerx.HealthStarting && c.Health != dockerx.HealthUnhealthy {
			s.Mark = storev1.ServiceMark_SERVICE_MARK_READY
		}
	}
	return v
}

// running returns the verdict for a primary that was started and has not exited.
func (r *rebuild) running(c dockerx.ContainerDetail) verdict {
	h := r.hooks()
	released := r.f.Released || !gated(c)
	switch {
	case h.cutOff:
		return r.failed(plan.CodeContainerNotRunning, fmt.Sprintf("the record was lost while hook %d of the create ran", h.done+1))
	case released && (h.done == h.total || h.done == 0):
		if h.done < h.total { // its journals are lost, or no hook ran: no hook runs twice
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

// ended returns the verdict for a primary that has exited.
func (r *rebuild) ended(c dockerx.ContainerDetail) verdict {
	switch {
	case c.ExitCode == codeEnded || c.ExitCode == codeTerminated:
		r.guess("state") // a demoted pause and a completed main process have these codes, too
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
		r.guess("state") // the main process may exit with another code after a stop
		return r.stopped()
	}
	return r.failed(plan.CodeContainerDied, fmt.Sprintf("the primary container exited with code %d before the record was lost", c.ExitCode))
}

func (r *rebuild) stopped() verdict {
	v := r.up(agboxv1.SandboxState_SANDBOX_STATE_STOPPED, storev1.RunState_RUN_STATE_STOP)
	v.progress = &storev1.Progress{HooksDone: r.hooks().total}
	return v
}

// takenByDeath reports whether the end of the engine or host ended the primary: the engine did not observe the exit, or found it
// exited in a run of the engine that started later. A completed stop has another exit code, which is checked before.
func (r *rebuild) takenByDeath(c dockerx.ContainerDetail) bool {
	if c.ExitCode == codeUnseen && len(r.spec.GetCommand()) == 0 {
		return true // the shim never exits with this code
	}
	since := r.in.LifeSince
	return !since.IsZero() && c.StartedAt.Before(since) && !c.FinishedAt.Before(since)
}

// anotherLife returns an engine run that has ended; of the same boot if the host's is known.
func (r *rebuild) anotherLife() *storev1.EngineRun {
	const lost = "lost with the record"
	life := r.in.EngineRun
	if life.GetEngineStart() == "" {
		return &storev1.EngineRun{BootId: lost, EngineStart: lost}
	}
	return &storev1.EngineRun{BootId: life.GetBootId(), EngineStart: lost}
}

// progress records which containers were started.
func (r *rebuild) progress() *storev1.Progress {
	p := &storev1.Progress{HooksDone: r.hooks().total}
	if len(r.p.services) > 0 {
		p.Services = map[string]*storev1.ServiceProgress{}
	}
	for _, c := range r.p.services {
		p.Services[serviceName(c)] = &storev1.ServiceProgress{Started: c.State != dockerx.StateCreated}
	}
	if c := r.p.primary; c != nil && c.State != dockerx.StateCreated {
		p.PrimaryStarted, p.Copied = true, true // copies are recorded before the first start
	}
	return p
}

// gated reports whether PID 1 waits for its release: a container of the first versions does not, and its hooks must not run again.
func gated(c dockerx.ContainerDetail) bool {
	options, _, _ := strings.Cut(strings.Join(c.Entrypoint, " ")+" ", " -- ")
	return slices.Contains(strings.Fields(options), "--gated")
}

// hookState is the state of the create's hooks, according to their files.
type hookState struct {
	total, done uint32
	// cutOff: the hook after the last completed one was requested, and did not succeed. Its nonce was lost with the record, so
	// its result is never certain.
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
		if execid.IsHook(t.ExecID) {
			traces[t.ExecID] = t
		}
	}
	for h.done < h.total {
		t, ok := traces[execid.ForHook(int(h.done))]
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
