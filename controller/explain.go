package controller

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/store"
)

// explainTimeout bounds one explanation. It is part of the contract.
const explainTimeout = 10 * time.Second

// Explain says what is wanted of a sandbox, what there is, what differs, and what a pass would do now or why it waits, by
// the same code as a pass. It takes no step and writes nothing. Without the engine it tells what is on record. Sandboxes that
// are deleted, and damaged records, are explained too. Errors: Refusal SANDBOX_NOT_FOUND for an ID that neither the store
// nor the engine knows; ErrUnavailable.
func (c *Controller) Explain(ctx context.Context, id string) (*agboxv1.ExplainResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	rec, sb, err := c.record(ctx, id)
	if err != nil {
		return nil, err
	}
	e := &explanation{Controller: c, rec: rec, sb: sb, at: c.clock.Look()}
	seen := e.look(ctx)
	if rec.Standing == plan.NeverReserved && (!seen || !e.plan.Unknown) {
		if _, err := c.cfg.Store.Sandbox(ctx, id); err != nil {
			return nil, err
		}
		return c.Explain(ctx, id) // it was accepted in between
	}
	return e.response(seen), nil
}

// explanation is one look at one sandbox.
type explanation struct {
	*Controller
	rec plan.Record
	sb  store.Sandbox
	at  clock.Look

	link  linkState // of the engine, as it was known before the look
	blind error     // why nothing was seen of an engine that was well
	world plan.World
	plan  plan.Plan
}

// look observes and decides, as a pass does. It reports whether there is a verdict.
func (e *explanation) look(ctx context.Context) (seen bool) {
	e.link = e.Controller.link.known()
	if e.link.problem != "" {
		return false
	}
	run := e.cfg.run(e.link.info)
	v := view{rec: &e.rec, sb: e.sb, at: e.at}
	e.world, e.blind = e.onlooker().observe(ctx, v, run)
	if e.blind != nil {
		return false
	}
	e.plan = e.decide(e.rec, e.sb, e.world, e.at)
	return true
}

// onlooker is a controller that observes as the real one does and leaves no trace: what it learns of ports and hooks goes
// into boards of its own, and it never marks an engine as ours.
func (e *explanation) onlooker() *Controller {
	cfg := e.cfg
	cfg.Engine, cfg.Store, cfg.Logger = unmarkedEngine{cfg.Engine}, unmarkedStore{cfg.Store}, slog.New(slog.DiscardHandler)
	o := &Controller{
		cfg: cfg, log: cfg.Logger, clock: e.clock, started: e.started, ops: e.ops,
		link: &engineLink{cfg: cfg, log: cfg.Logger}, hooks: e.hooks.copied(e.rec.ID),
		status: newStatusBoard(), published: newPortBoard(), kills: e.kills, parked: newKeySet(), odd: newOddities(),
		absences: e.absences.copied(),
	}
	o.settings.Store(e.settings.Load())
	return o
}

// unmarkedEngine and unmarkedStore leave out what a look at the engine may do beside looking.
type unmarkedEngine struct{ Engine }

func (unmarkedEngine) CreateVolume(context.Context, string, map[string]string) error { return nil }

type unmarkedStore struct{ Store }

func (unmarkedStore) SetMarkerWritten(context.Context) error { return nil }

func (unmarkedStore) SetEngineIdentity(context.Context, *storev1.EngineIdentity) error { return nil }

func (unmarkedStore) ForgetGivenUp(context.Context, string) error { return nil }

// copied is a clock of its own that knows what this one does of a sandbox.
func (k *hookClock) copied(sandboxID string) *hookClock {
	k.mu.Lock()
	defer k.mu.Unlock()
	other := newHookClock(k.now)
	if b, ok := k.begun[sandboxID]; ok {
		other.begun[sandboxID] = b
	}
	return other
}

func (e *explanation) response(seen bool) *agboxv1.ExplainResponse {
	last := e.sandboxes.Failure(e.rec.ID)
	r := &agboxv1.ExplainResponse{
		Desired: desiredWord(e.rec, e.sb), State: e.sb.State, Observed: e.observed(seen), Waiting: e.waiting(),
		Tries: uint32(e.sandboxes.Tries(e.rec.ID)), Deadlines: deadlines(e.at.Dated(e.rec, e.sb), e.sb.Spec, e.policy(e.sb, e.at)),
		EngineProblem: e.link.problem,
	}
	if e.rec.Standing == plan.Gone || e.rec.Standing == plan.Unswept {
		r.State = agboxv1.SandboxState_SANDBOX_STATE_DELETED // also when its history is purged
	}
	if seen {
		r.Differences, r.NextSteps = differences(e.rec, e.redact(e.sb.ErrorMessage), e.world, e.plan), e.nextSteps()
		r.ResumeSteps, r.ResumeRefusal = e.afterResume()
	}
	if last.Err != nil {
		r.LastError = e.redact(message.Of(last.Err))
	}
	if last.RetryAt.After(time.Now()) {
		r.RetryAt = timestamppb.New(last.RetryAt)
	}
	if e.link.problem != "" {
		r.EngineProblemSince = timestamppb.New(e.link.since)
	}
	return r
}

// desiredWord is what is wanted; empty when nobody knows.
func desiredWord(rec plan.Record, sb store.Sandbox) string {
	if rec.Standing == plan.Gone || rec.Standing == plan.Unswept {
		return "delete"
	}
	return map[storev1.RunState]string{
		storev1.RunState_RUN_STATE_RUN: "run", storev1.RunState_RUN_STATE_STOP: "stop",
		storev1.RunState_RUN_STATE_PAUSE: "pause", storev1.RunState_RUN_STATE_DELETE: "delete",
	}[sb.Desired.GetRunState()]
}

// waiting is why nothing happens, or not yet.
func (e *explanation) waiting() string {
	status := e.Status(e.rec.ID)
	switch {
	case e.link.problem != "":
		return e.link.problem
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
	case e.rec.Standing == plan.Live && e.rec.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED && len(e.plan.Steps) == 0:
		if _, refusal := e.afterResume(); refusal != "" {
			return "a failed sandbox is not tried again, and it can't be resumed: " + refusal
		}
		return "a failed sandbox is not tried again; `agbox resume` brings it back"
	}
	return ""
}

// retrying is what the status of a sandbox begins with whose last pass failed.
const retrying = "retrying: "

// redact takes env values out of a text that may quote the engine or a program.
func (e *explanation) redact(text string) string {
	envs := []map[string]string{e.sb.Spec.GetEnvs()}
	for _, svc := range slices.Concat(e.sb.Spec.GetRequiredServices(), e.sb.Spec.GetOptionalServices()) {
		envs = append(envs, svc.GetEnvs())
	}
	return message.Redact(strings.ToValidUTF8(text, ""), envs...)
}
