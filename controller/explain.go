package controller

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/enginelink"
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

	link  enginelink.State // of the engine, as it was known before the look
	blind error            // why nothing was seen of an engine that was well
	world plan.World
	plan  plan.Plan
}

// look observes and decides, as a pass does. It reports whether there is a verdict.
func (e *explanation) look(ctx context.Context) (seen bool) {
	e.link = e.Controller.link.State()
	if e.link.Problem != "" {
		return false
	}
	run := e.Controller.link.RunOf(e.link.Info)
	v := view{rec: &e.rec, sb: e.sb, at: e.at, hook: e.hooks.get(e.rec.ID)}
	saw, err := e.onlooker().observe(ctx, v, run)
	e.world, e.blind = saw.world, err
	if e.blind != nil {
		return false
	}
	e.plan = e.decide(e.rec, e.sb, e.world, e.at)
	return true
}

// onlooker observes as a pass does, by ports that change nothing: it does not mark the engine, nor record an identity of it or that a
// confirmation is stale, and the looks at an absence are kept in a memory of its own.
func (e *explanation) onlooker() *observer {
	o := *e.observer
	o.link, o.absences = e.Controller.link.Checker(), e.absences.Reader()
	return &o
}

func (e *explanation) response(seen bool) *agboxv1.ExplainResponse {
	last := e.sandboxes.Failure(e.rec.ID)
	r := &agboxv1.ExplainResponse{
		Desired: desiredWord(e.rec, e.sb), State: e.sb.State, Observed: e.observed(seen), Waiting: e.waiting(),
		Tries: uint32(e.sandboxes.Tries(e.rec.ID)), Deadlines: deadlines(e.at.Dated(e.rec, e.sb), e.sb.Spec, e.policy(e.sb, e.at)),
		EngineProblem: e.link.Problem,
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
	if e.link.Problem != "" {
		r.EngineProblemSince = timestamppb.New(e.link.Since)
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
