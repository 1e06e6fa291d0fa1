// Package inspect explains the observed state: Explainer says what a pass would do, and Collector lists the leftovers of sandboxes that no
// longer exist. By the types of their ports they cannot change a sandbox: a Collector removes garbage through one Remover.
package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/netentry"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/enginelink"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/store"
)

// timeout bounds one explanation. It is part of the contract.
const timeout = 10 * time.Second

// Queue returns why the last pass over a key failed: *queue.Loop.
type Queue interface {
	Failure(key string) queue.Failure
	Tries(key string) int
}

// Options are the dependencies of an Explainer. All are required.
type Options struct {
	// Sandbox and Agent read records of the store.
	Sandbox func(ctx context.Context, id string) (store.Sandbox, error)
	Agent   func(ctx context.Context, id string) (store.Agent, error)
	// Sandboxes returns a reader for one explanation; it shares no memory with the passes.
	Sandboxes func() *sandbox.Reader
	Agents    *agent.Observer
	// Engine returns the link's state of the engine, and RunOf the engine's life.
	Engine func() enginelink.State
	RunOf  func(info dockerx.Info) *storev1.EngineRun
	// Clock reads the clock that deadlines use.
	Clock func() clock.Reading
	// SandboxQueue and AgentQueue are the queues of their passes.
	SandboxQueue, AgentQueue Queue
	// SandboxStatus returns in one sentence what a sandbox waits for, and AgentStatus what an agent does; unverified: no pass has judged it
	// since the daemon started.
	SandboxStatus func(sandboxID string) string
	AgentStatus   func(agentID string) (line string, unverified bool)
	// Network returns what a sandbox reached and was denied in the last hour, what was denied first.
	Network func(sb store.Sandbox) (list []*agboxv1.NetworkDestination, problem string, err error)
}

// Explainer explains sandboxes and agents.
type Explainer struct{ o Options }

// NewExplainer returns an Explainer.
func NewExplainer(o Options) *Explainer { return &Explainer{o} }

// answer returns what is said of a sandbox and of an agent alike: why the last pass over its key failed, and what is wrong with the engine.
func answer(q Queue, key string, link enginelink.State, redact func(string) string) *agboxv1.ExplainResponse {
	r, last := &agboxv1.ExplainResponse{Tries: uint32(q.Tries(key)), EngineProblem: link.Problem}, q.Failure(key)
	if last.Err != nil {
		r.LastError = redact(message.Of(last.Err))
	}
	if last.RetryAt.After(time.Now()) {
		r.RetryAt = timestamppb.New(last.RetryAt)
	}
	if link.Problem != "" {
		r.EngineProblemSince = timestamppb.New(link.Since)
	}
	return r
}

// Explain returns the desired and the observed state of a sandbox, their differences, and what a pass would do now or why it waits, by the
// same code as a pass. It runs no step and writes nothing. Without the engine it returns what is recorded. It also explains deleted
// sandboxes and damaged records. Errors: Refusal SANDBOX_NOT_FOUND for an ID that neither the store nor the engine knows; ErrUnavailable.
func (x *Explainer) Explain(ctx context.Context, id string) (*agboxv1.ExplainResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reader := x.o.Sandboxes()
	rec, sb, err := reader.Record(ctx, id)
	if err != nil {
		return nil, err
	}
	e := &explanation{o: x.o, reader: reader, rec: rec, sb: sb, at: x.o.Clock()}
	seen := e.observe(ctx)
	if rec.Standing == plan.NeverReserved && (!seen || !e.plan.Unknown) {
		if _, err := x.o.Sandbox(ctx, id); err != nil {
			return nil, err
		}
		return x.Explain(ctx, id) // it was accepted in between
	}
	return e.response(seen), nil
}

// explanation explains one sandbox at one moment.
type explanation struct {
	o      Options
	reader *sandbox.Reader
	rec    plan.Record
	sb     store.Sandbox
	at     clock.Reading

	link  enginelink.State // as it was before the observation
	blind error            // why there is no observation of a usable engine
	world plan.World
	plan  plan.Plan
}

// observe observes and decides, as a pass does. It reports whether there is a decision.
func (e *explanation) observe(ctx context.Context) (seen bool) {
	e.link = e.o.Engine()
	if e.link.Problem != "" {
		return false
	}
	v := sandbox.View{Record: e.rec, Sandbox: e.sb, At: e.at}
	if e.world, _, e.blind = e.reader.Observe(ctx, v, e.o.RunOf(e.link.Info)); e.blind != nil {
		return false
	}
	e.plan = e.reader.Decide(e.rec, e.sb, e.world, e.at)
	return true
}

func (e *explanation) response(seen bool) *agboxv1.ExplainResponse {
	r := answer(e.o.SandboxQueue, e.rec.ID, e.link, e.redact)
	r.Desired, r.State, r.Observed, r.Waiting = desiredWord(e.rec, e.sb), e.sb.State, e.observed(seen), e.waiting()
	r.Deadlines = deadlines(e.at.Dated(e.rec, e.sb), e.sb.Spec, e.reader.Policy(e.sb, e.at))
	if e.rec.Standing == plan.Gone || e.rec.Standing == plan.Unswept {
		r.State = agboxv1.SandboxState_SANDBOX_STATE_DELETED // also if its history is purged
	}
	if seen {
		r.Differences, r.NextSteps = differences(e.rec, e.redact(e.sb.ErrorMessage), e.world, e.plan), e.nextSteps()
		r.ResumeSteps, r.ResumeRefusal = e.afterResume()
	}
	if e.rec.Standing == plan.Live {
		r.Denied = e.denied()
	}
	return r
}

// mostDenied bounds the lines about what the network policy denied.
const mostDenied = 10

// denied returns lines about what the network policy denied the sandbox. What cannot be read is left out.
func (e *explanation) denied() (lines []string) {
	list, _, _ := e.o.Network(e.sb)
	list = slices.DeleteFunc(list, func(d *agboxv1.NetworkDestination) bool { return !d.GetDenied() })
	for _, d := range list[:min(len(list), mostDenied)] {
		lines = append(lines, fmt.Sprintf("%s, %d times, the last one %s ago", netentry.Destination(d), d.GetCount(), e.at.Now.Sub(d.GetLastAt().AsTime()).Round(time.Second)))
	}
	if more := len(list) - mostDenied; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more; see `agbox network`", more))
	}
	return lines
}

// desiredWord returns the word for the desired state; empty: unknown.
func desiredWord(rec plan.Record, sb store.Sandbox) string {
	if rec.Standing == plan.Gone || rec.Standing == plan.Unswept {
		return "delete"
	}
	return strings.ToLower(word(sb.Desired.GetRunState()))
}

// waiting returns why nothing happens now.
func (e *explanation) waiting() string {
	status := e.o.SandboxStatus(e.rec.ID)
	switch {
	case e.link.Problem != "":
		return e.link.Problem
	case e.blind != nil:
		return "no verdict: " + e.redact(message.Of(e.blind))
	case e.plan.Unknown:
		if e.rec.Standing == plan.Unswept {
			return "cleanup_ttl deleted the sandbox after a failure, and the engine may have hidden its containers then; they stay until " +
				"`agbox gc --unknown --yes` removes them"
		}
		return "this store never knew the sandbox; its Docker objects stay until `agbox gc --unknown --yes` removes them"
	case status != "":
		if what, ok := strings.CutPrefix(status, retrying); ok {
			return retrying + e.redact(what)
		}
		return status
	case e.plan.Waiting != "":
		return e.plan.Waiting
	case e.rec.Standing == plan.Live && e.rec.Failed() && len(e.plan.Steps) == 0:
		if _, refusal := e.afterResume(); refusal != "" {
			return "a failed sandbox is not tried again, and it can't be resumed: " + refusal
		}
		return "a failed sandbox is not tried again; `agbox resume` brings it back"
	}
	return ""
}

// retrying is the prefix of a sandbox's status whose last pass failed.
const retrying = "retrying: "

// redact removes env values from a text that may quote the engine or a program.
func (e *explanation) redact(text string) string {
	envs := []map[string]string{e.sb.Spec.GetEnvs()}
	for _, svc := range slices.Concat(e.sb.Spec.GetRequiredServices(), e.sb.Spec.GetOptionalServices()) {
		envs = append(envs, svc.GetEnvs())
	}
	return message.Redact(strings.ToValidUTF8(text, ""), envs...)
}

// deadlines returns the deadlines of a sandbox that stays as it is, soonest first. An expired deadline is included until it was acted on.
func deadlines(rec plan.Record, spec *agboxv1.CreateSpec, pol plan.Policy) []*agboxv1.ExplainDeadline {
	if rec.Departs() {
		return nil
	}
	var l deadlineList
	switch {
	case rec.Kept() && (rec.AtRest() || !rec.DemotedAt.IsZero()): // nothing deletes it
	case rec.AtRest():
		l.add("cleanup_ttl", rec.StateChangedAt, pol.CleanupTTL, "delete")
	case rec.Desired == storev1.RunState_RUN_STATE_RUN:
		l.at("timeout", rec.DeadlineAt, cmp.Or(spec.GetOnTimeout(), "stop"))
		l.add("idle_ttl", rec.IdleSince, pol.IdleTTL, "stop")
	case rec.Desired == storev1.RunState_RUN_STATE_PAUSE && !rec.DemotedAt.IsZero():
		l.add("stopped_gc_after", rec.DemotedAt, pol.StoppedGCAfter, "delete")
	case rec.State == agboxv1.SandboxState_SANDBOX_STATE_PAUSED:
		l.add("freeze_duration", rec.StateChangedAt, pol.FreezeDuration, "demote")
	}
	slices.SortStableFunc(l, func(a, b *agboxv1.ExplainDeadline) int { return a.GetAt().AsTime().Compare(b.GetAt().AsTime()) })
	return l
}

type deadlineList []*agboxv1.ExplainDeadline

// add adds the deadline ttl after since; none if since is zero or ttl is not positive.
func (l *deadlineList) add(kind string, since time.Time, ttl time.Duration, action string) {
	if ttl > 0 && !since.IsZero() {
		l.at(kind, since.Add(ttl), action)
	}
}

func (l *deadlineList) at(kind string, at time.Time, action string) {
	if !at.IsZero() {
		*l = append(*l, &agboxv1.ExplainDeadline{Kind: kind, At: timestamppb.New(at), Action: action})
	}
}

// afterResume returns the steps that a resume with recover would run for a STOPPED or FAILED sandbox, as a pass would decide them, or the
// reason of its refusal. For other states it returns nothing.
func (e *explanation) afterResume() (steps []string, refusal string) {
	switch {
	case e.rec.Departs() || !e.rec.AtRest():
		return nil, ""
	case e.rec.ErrorCode == plan.CodeCreateFailed:
		return nil, "its create failed, and its containers were removed; delete it, or apply it again with --replace"
	case e.rec.Progress.GetMissingFrom() == agboxv1.SandboxState_SANDBOX_STATE_PENDING && e.rec.Attempt == storev1.Attempt_ATTEMPT_CREATE:
		return nil, "its create continues when the engine shows its primary container; if that container is gone, delete the sandbox, or apply it again with --replace"
	}
	rec, w := e.rec, e.world
	rec.State, rec.Desired, rec.Attempt = agboxv1.SandboxState_SANDBOX_STATE_PENDING, storev1.RunState_RUN_STATE_RUN, storev1.Attempt_ATTEMPT_RESUME
	rec.Recover, rec.Progress = true, &storev1.Progress{HooksDone: rec.Progress.GetHooksDone()}
	w.Stopping = nil
	p := e.reader.Decide(rec, e.sb, w, e.at)
	for _, ev := range p.After.Events {
		if ev.GetEventType() == agboxv1.EventType_SANDBOX_FAILED {
			return nil, e.redact(ev.GetSandboxPhase().GetErrorMessage()) + "; delete it, or apply it again with --replace"
		}
	}
	for _, s := range p.Steps {
		steps = append(steps, e.step(s))
	}
	return steps, ""
}
