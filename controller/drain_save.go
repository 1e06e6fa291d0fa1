package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// Bounds of saving where a drain names none; they are part of the contract.
const (
	defaultSaveEach = 30 * time.Second
	defaultSaveAll  = 60 * time.Second
	// savers work side by side.
	savers = 4
)

// exitNoWorkTree is how gitSave says that there was nothing to save.
const exitNoWorkTree = 66

// gitSave is what saves the work of an agent whose spec does not say how. Outside a git work tree there is nothing to save; one
// that git is missing for, or refuses, is not saved. Half-done work passes no hooks, and nobody may have said who commits. Where
// the branch can't be pushed, or there is none, the work goes to a branch of its own.
var gitSave = []string{"sh", "-c", `git rev-parse --is-inside-work-tree >/dev/null 2>&1 || {
	at=$(pwd -P)
	until [ -e "$at/.git" ]; do [ -n "$at" ] || exit 66; at=${at%/*}; done
	exit 65
}
git var GIT_COMMITTER_IDENT >/dev/null 2>&1 && git var GIT_AUTHOR_IDENT >/dev/null 2>&1 ||
	export GIT_AUTHOR_NAME=agbox GIT_AUTHOR_EMAIL=agbox@localhost GIT_COMMITTER_NAME=agbox GIT_COMMITTER_EMAIL=agbox@localhost
git add -A || exit
git diff --cached --quiet || git commit -q --no-verify --no-gpg-sign -m "WIP: eviction save" || exit
git remote get-url origin >/dev/null 2>&1 || exit 0
git push -q --no-verify origin HEAD || git push -q --no-verify origin "HEAD:refs/heads/agbox-save-$AGBOX_EXEC_ID"`}

// saveStragglers ends what is still in a turn and saves its work, all within the time that the drain gives. Every one is parked
// by then, with its work saved or not, unless the drain was over before its process was ended: it goes on.
// One whose sandbox is to end is that end's, which may take a little longer.
func (c *Controller) saveStragglers(ctx context.Context, rec *storev1.DrainRecord, ids []string) {
	within, cancel := context.WithTimeout(ctx, orDuration(rec.GetSaveAll(), defaultSaveAll))
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, savers)
	for _, id := range ids {
		wg.Go(func() {
			a, err := c.cfg.Store.Agent(within, id)
			if err != nil {
				return // it is gone
			}
			if c.endsWithSandbox(within, a) {
				c.awaitAgent(within, a.ID, parkGrace, isDown)
				return
			}
			c.saveStraggler(ctx, within, rec, a, slots)
		})
	}
	wg.Wait()
}

// endsWithSandbox reports whether the end of its sandbox has an agent in hand, which saves its work too.
func (c *Controller) endsWithSandbox(ctx context.Context, a store.Agent) bool {
	sb, _, err := c.record(ctx, a.SandboxID)
	return err == nil && isEnding(sb)
}

// saveStraggler ends one and saves its work. The end of its sandbox, if that is asked for meanwhile, waits for it and does not do
// the same again.
func (c *Controller) saveStraggler(ctx, within context.Context, rec *storev1.DrainRecord, a store.Agent, slots chan struct{}) {
	c.agentBoard.save(a.ID, true)
	defer func() {
		c.agentBoard.save(a.ID, false)
		c.agents.Add(a.ID)
		c.sandboxes.Add(a.SandboxID)
	}()
	if !c.endStraggler(within, rec, a) {
		return
	}
	select {
	case slots <- struct{}{}:
		c.park(ctx, a, c.runSave(within, rec, a))
		<-slots
	case <-within.Done():
		c.park(ctx, a, context.Cause(within))
	}
}

func orDuration(nanos int64, otherwise time.Duration) time.Duration {
	if nanos > 0 {
		return time.Duration(nanos)
	}
	return otherwise
}

// endStraggler interrupts an agent and ends its process. What it said last is read by its own passes meanwhile. false: the drain
// was over before the process was ended.
func (c *Controller) endStraggler(ctx context.Context, rec *storev1.DrainRecord, a store.Agent) bool {
	if _, err := c.cfg.Store.RequestFreeze(ctx, a.ID); err == nil {
		c.awaitAgent(ctx, a.ID, agentplan.InterruptGrace, func(a store.Agent) bool {
			return a.Status.GetState() != agboxv1.AgentState_AGENT_STATE_BUSY || !c.cfg.Store.Drains(rec)
		})
	}
	if !c.cfg.Store.Drains(rec) {
		return false
	}
	if _, err := c.cfg.Store.RequestCancel(ctx, agentExec(a)); err != nil && !errdefs.IsFailedPrecondition(err) && !errdefs.IsNotFound(err) {
		c.log.Warn("a straggler is not ended", "agent_id", a.ID, "err", err)
	}
	c.awaitAgent(ctx, a.ID, orDuration(rec.GetSaveEach(), defaultSaveEach), isDown)
	return true
}

// isDown reports whether an agent has no process, and that is on record.
func isDown(a store.Agent) bool {
	return a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_STOPPED || a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_FAILED
}

// park records what came of an agent's work: nothing, where there was nothing to save.
func (c *Controller) park(ctx context.Context, a store.Agent, err error) {
	saved := store.Saved
	if errors.Is(err, errMoot) {
		saved = ""
	} else if err != nil {
		saved = store.NotSaved
		c.log.Warn("the work of an agent is not saved", "agent_id", a.ID, "err", err)
	}
	_, err = c.cfg.Store.TransitionAgent(ctx, a.ID, store.Transition{
		Incarnation: a.Status.GetIncarnation(), Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_DRAIN_PARKED,
		Reason: "parked by a drain", Parked: true, Saved: saved,
	})
	if err != nil {
		c.log.Warn("what a drain made of an agent's work is not recorded", "agent_id", a.ID, "saved", saved, "err", err)
	}
}

// awaitAgent waits for an agent to be as wanted, for d at most.
func (c *Controller) awaitAgent(ctx context.Context, id string, d time.Duration, is func(store.Agent) bool) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		a, err := c.cfg.Store.Agent(ctx, id)
		if err != nil || is(a) || wait.For(ctx, drainLook) != nil {
			return
		}
	}
}

// runSave runs the save command in the agent's sandbox and waits for its end.
func (c *Controller) runSave(ctx context.Context, rec *storev1.DrainRecord, a store.Agent) error {
	occasion := fmt.Sprintf("drain %d %d", rec.GetEpoch(), rec.GetStartedAt())
	return c.runHelper(ctx, c.saves(a, occasion, orDuration(rec.GetSaveEach(), defaultSaveEach)))
}
