package plan

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/backoff"
)

// The engine's verdicts.
const (
	verdictGood = "healthy"
	verdictBad  = "unhealthy"
)

// well reports whether a service works, as far as is known.
func (s Service) well(c Container) bool {
	return c.Alive() && (c.Health == verdictGood || c.Health == "" && !s.Healthcheck)
}

// fall is the reason why a service failed.
type fall struct{ code, text string }

// serviceFall returns the failure of a service that has ended or is unhealthy.
func serviceFall(c Container) fall {
	if !c.Alive() {
		code, text := death(c, false, "its container")
		return fall{code, text}
	}
	return fall{CodeServiceFailed, "it is unhealthy" + probeOutput(c) + c.lastOutput()}
}

func notHealthyInTime(s Service, c Container) fall {
	return fall{CodeServiceFailed, fmt.Sprintf("it was not healthy within %s%s", s.HealthWait, probeOutput(c))}
}

func probeOutput(c Container) string {
	if out := strings.TrimSpace(c.HealthOutput); out != "" {
		return "; its last probe said: " + out
	}
	return ""
}

// progress returns the service's progress with the failure recorded.
func (f fall) progress(before *storev1.ServiceProgress) *storev1.ServiceProgress {
	sp := proto.CloneOf(before)
	sp.Mark, sp.ErrorCode, sp.ErrorMessage = storev1.ServiceMark_SERVICE_MARK_FAILED, f.code, f.text
	return sp
}

// wellProgress returns the progress of a service that works.
func wellProgress(before *storev1.ServiceProgress) *storev1.ServiceProgress {
	return &storev1.ServiceProgress{Mark: storev1.ServiceMark_SERVICE_MARK_READY, Started: true, Restarts: before.GetRestarts()}
}

// watchServices starts the optional services and watches those that run; with required also the ones that READY depends on.
func (b *bringUp) watchServices(required bool) {
	for _, s := range b.r.Wanted.Services {
		if s.Required && !required {
			continue
		}
		if a, ok := b.watch(s); ok {
			b.p.Asides = append(b.p.Asides, a)
		}
	}
}

// watch decides about one service whose failure does not fail the sandbox: an optional one, or a required one once the sandbox is READY.
// Each failure and each recovery gets one event.
func (b *bringUp) watch(s Service) (Aside, bool) {
	c, sp := b.mine.services[s.Name], progressOf(b.progress, s.Name)
	recorded := sp.GetMark()
	switch {
	case c == nil && b.mayCreate(s, sp):
		return b.createAside(s, sp), true
	case c == nil:
		return b.recordFailure(s, sp, fall{CodeServiceFailed, "its container is missing"})
	case !c.Alive() && !sp.GetStarted():
		return b.startAside(s, sp, c.ID), true
	case s.well(*c):
		if recorded == storev1.ServiceMark_SERVICE_MARK_READY {
			return Aside{}, false
		}
		return Aside{Service: s.Name, Then: wellProgress(sp), Events: []*agboxv1.SandboxEvent{serviceReady(s.Name, b.stateNow())}}, true
	case !c.Alive() && recorded == storev1.ServiceMark_SERVICE_MARK_FAILED:
		return b.bringBack(s, sp, *c)
	case !c.Alive(), c.Health == verdictBad:
		return b.recordFailure(s, sp, serviceFall(*c))
	}
	return b.awaitHealth(s, sp, *c)
}

// mayCreate reports whether a missing container has not been created yet: only the run of the create makes one, and only until it was
// started or given up.
func (b *bringUp) mayCreate(s Service, sp *storev1.ServiceProgress) bool {
	return !s.Required && b.r.Attempt == storev1.Attempt_ATTEMPT_CREATE && !sp.GetStarted() &&
		sp.GetMark() != storev1.ServiceMark_SERVICE_MARK_FAILED
}

// stateNow is the sandbox's state when an aside is recorded.
func (b *bringUp) stateNow() agboxv1.SandboxState {
	for _, e := range b.p.After.Events {
		if e.GetEventType() == agboxv1.EventType_SANDBOX_READY {
			return agboxv1.SandboxState_SANDBOX_STATE_READY
		}
	}
	return b.r.State
}

func (b *bringUp) createAside(s Service, sp *storev1.ServiceProgress) Aside {
	a := b.startAside(s, sp, "")
	a.Steps = append([]Step{
		{Kind: EnsureImage, Service: s.Name, Reason: b.reason},
		{Kind: CreateService, ID: b.mine.network.ID, Service: s.Name, Reason: b.reason},
	}, a.Steps...)
	return a
}

func (b *bringUp) startAside(s Service, sp *storev1.ServiceProgress, id string) Aside {
	then := proto.CloneOf(sp)
	then.Started = true
	return Aside{
		Service: s.Name, State: b.stateNow(), Then: then,
		Steps: []Step{{Kind: StartContainer, ID: id, Service: s.Name, Reason: b.reason}},
	}
}

// recordFailure records the event of a failure, once.
func (b *bringUp) recordFailure(s Service, sp *storev1.ServiceProgress, f fall) (Aside, bool) {
	if sp.GetMark() == storev1.ServiceMark_SERVICE_MARK_FAILED {
		return Aside{}, false
	}
	return Aside{
		Service: s.Name, Then: f.progress(sp), Events: []*agboxv1.SandboxEvent{serviceFailed(s.Name, b.stateNow(), f)},
	}, true
}

// GivenUp returns the aside that replaces one whose steps cannot run; p is the progress recorded so far. The service counts as started, so
// only its restart policy retries it, and its failure gets an event unless it has one.
func (a Aside) GivenUp(p *storev1.Progress, text string) Aside {
	before, f := progressOf(p, a.Service), fall{CodeServiceFailed, text}
	then := f.progress(before)
	then.Started, then.Restarts = true, a.Then.GetRestarts()
	up := Aside{Service: a.Service, Then: then}
	if before.GetMark() != storev1.ServiceMark_SERVICE_MARK_FAILED {
		up.Events = append(up.Events, serviceFailed(a.Service, a.State, f))
	}
	return up
}

// awaitHealth bounds the wait for the first healthy verdict.
func (b *bringUp) awaitHealth(s Service, sp *storev1.ServiceProgress, c Container) (Aside, bool) {
	if sp.GetMark() != storev1.ServiceMark_SERVICE_MARK_UNSPECIFIED || !c.Inspected {
		return Aside{}, false // its next verdict is an event
	}
	left := b.since(c.StartedAt).Add(s.HealthWait).Sub(b.now)
	if left <= 0 {
		return b.recordFailure(s, sp, notHealthyInTime(s, c))
	}
	b.p.soonest(left)
	return Aside{}, false
}

// bringBack restarts a service whose failure is recorded, if its policy says so.
func (b *bringUp) bringBack(s Service, sp *storev1.ServiceProgress, c Container) (Aside, bool) {
	wait, ok := backOff(s.Restart, c, sp.GetRestarts(), b.now)
	if !ok {
		return Aside{}, false
	}
	if wait > 0 {
		b.p.soonest(wait)
		return Aside{}, false
	}
	a := b.startAside(s, sp, c.ID) // it was started before, so this changes only the count
	a.Then.Restarts, a.Steps[0].Reason = nextRestart(c, sp.GetRestarts(), b.now), BecauseRestartPolicy
	return a, true
}

// restarts is the backoff of restart policies. A run of at least restartReset resets it.
var restarts = backoff.Backoff{Base: time.Second, Max: 5 * time.Minute}

const restartReset = 10 * time.Minute

// backOff returns how long to wait before the policy restarts a container that ended on its own; not ok: the policy does not restart it.
// The wait is at most twice the backoff, even if the clock was set back.
func backOff(policy RestartPolicy, c Container, r *storev1.Restarts, now time.Time) (wait time.Duration, ok bool) {
	switch {
	case policy == RestartAlways, policy == RestartOnFailure && !c.EndedWell:
	default:
		return 0, false
	}
	pause, since := restarts.After(row(c, r)+1), c.FinishedAt
	if last := time.Unix(0, r.GetLastAt()); last.After(since) { // the last try did not start it
		since = last
	}
	if wait = since.Add(pause).Sub(now); wait > 2*pause { // the clock was set back
		wait = 0
	}
	return wait, true
}

// row returns the number of restarts in a row before this end: a run of at least restartReset resets it.
func row(c Container, r *storev1.Restarts) uint32 {
	if c.FinishedAt.Sub(c.StartedAt) >= restartReset {
		return 0
	}
	return r.GetRow()
}

// nextRestart counts one more restart.
func nextRestart(c Container, r *storev1.Restarts, now time.Time) *storev1.Restarts {
	return &storev1.Restarts{Count: r.GetCount() + 1, Row: row(c, r) + 1, LastAt: now.UnixNano()}
}
