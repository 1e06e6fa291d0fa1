package agent

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

// Bounds of saving if a drain sets none; they are part of the contract.
const (
	defaultSaveEach = 30 * time.Second
	defaultSaveAll  = 60 * time.Second
	// savers is how many agents are saved concurrently.
	savers = 4
)

// exitNoWorkTree is the exit code of gitSave that means that there was nothing to save.
const exitNoWorkTree = 66

// gitSave saves the work of an agent whose spec has no save_command. Outside a git work tree there is nothing to save; if git is missing or
// refuses the work tree, the save fails. The commit skips hooks, which unfinished work would not pass, and names agbox if git knows no
// author. If the branch can't be pushed, or there is none, the work goes to a branch of its own.
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

// saveStragglers ends the processes of agents and saves their work, all within the time that the drain sets. By then each agent is parked,
// with its work saved or not; if the drain ends before its process does, the process continues. If the sandbox of an agent is ending, the
// stop of the sandbox saves and ends the agent, which may take a little longer.
func (d *Drainer) saveStragglers(ctx context.Context, rec *storev1.DrainRecord, ids []string) {
	within, cancel := context.WithTimeout(ctx, orDuration(rec.GetSaveAll(), defaultSaveAll))
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, savers)
	for _, id := range ids {
		wg.Go(func() {
			a, err := d.cfg.Store.Agent(within, id)
			if err != nil {
				return // it is gone
			}
			if d.endsWithSandbox(within, a) {
				d.awaitAgent(within, a.ID, agentplan.ParkGrace, isDown)
				return
			}
			d.saveStraggler(ctx, within, rec, a, slots)
		})
	}
	wg.Wait()
}

// endsWithSandbox reports whether the sandbox of an agent is ending: its stop saves the work too.
func (d *Drainer) endsWithSandbox(ctx context.Context, a store.Agent) bool {
	sb, _, err := d.cfg.Sandbox(ctx, a.SandboxID)
	return err == nil && sb.Ending()
}

// saveStraggler ends the process of one agent and saves its work. If a stop of its sandbox is requested meanwhile, that waits for this save
// and does not repeat it.
func (d *Drainer) saveStraggler(ctx, within context.Context, rec *storev1.DrainRecord, a store.Agent, slots chan struct{}) {
	d.setSaving(a.ID, true)
	defer func() {
		d.setSaving(a.ID, false)
		d.cfg.Queue.Add(a.ID)
		d.cfg.EnqueueSandbox(a.SandboxID)
	}()
	if !d.endStraggler(within, rec, a) {
		return
	}
	select {
	case slots <- struct{}{}:
		d.park(ctx, a, d.runSave(within, rec, a))
		<-slots
	case <-within.Done():
		d.park(ctx, a, context.Cause(within))
	}
}

func (d *Drainer) setSaving(agentID string, on bool) {
	d.agents.scratch.Change(agentID, func(s *memory) { s.saving = on })
}

func orDuration(nanos int64, otherwise time.Duration) time.Duration {
	if nanos > 0 {
		return time.Duration(nanos)
	}
	return otherwise
}

// endStraggler interrupts an agent and ends its process, while the agent's own passes read its last output. false: the drain was over
// before the process was ended.
func (d *Drainer) endStraggler(ctx context.Context, rec *storev1.DrainRecord, a store.Agent) bool {
	if _, err := d.cfg.Store.RequestFreeze(ctx, a.ID); err == nil {
		d.awaitAgent(ctx, a.ID, agentplan.InterruptGrace, func(a store.Agent) bool {
			return a.Status.GetState() != agboxv1.AgentState_AGENT_STATE_BUSY || !d.store.Drains(rec)
		})
	}
	if !d.store.Drains(rec) {
		return false
	}
	if _, err := d.cfg.Store.RequestCancel(ctx, execOf(a)); err != nil && !errdefs.IsFailedPrecondition(err) && !errdefs.IsNotFound(err) {
		d.cfg.Logger.Warn("a straggler is not ended", "agent_id", a.ID, "err", err)
	}
	d.awaitAgent(ctx, a.ID, orDuration(rec.GetSaveEach(), defaultSaveEach), isDown)
	return true
}

// isDown reports whether the record says that an agent has no process.
func isDown(a store.Agent) bool {
	return a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_STOPPED || a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_FAILED
}

// park records that a drain parked an agent, and whether its work is saved.
func (d *Drainer) park(ctx context.Context, a store.Agent, err error) {
	saved := store.Saved
	if errors.Is(err, errMoot) {
		saved = ""
	} else if err != nil {
		saved = store.NotSaved
		d.cfg.Logger.Warn("the work of an agent is not saved", "agent_id", a.ID, "err", err)
	}
	_, err = d.cfg.Store.TransitionAgent(ctx, a.ID, store.Transition{
		Incarnation: a.Status.GetIncarnation(), Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_DRAIN_PARKED,
		Reason: "parked by a drain", Parked: true, Saved: saved,
	})
	if err != nil {
		d.cfg.Logger.Warn("what a drain made of an agent's work is not recorded", "agent_id", a.ID, "saved", saved, "err", err)
	}
}

// awaitAgent waits until is holds for an agent, at most for most.
func (d *Drainer) awaitAgent(ctx context.Context, id string, most time.Duration, is func(store.Agent) bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		a, err := d.cfg.Store.Agent(ctx, id)
		if err != nil || is(a) || wait.For(ctx, drainPoll) != nil {
			return
		}
	}
}

// runSave runs the save command in the agent's sandbox and waits for its end.
func (d *Drainer) runSave(ctx context.Context, rec *storev1.DrainRecord, a store.Agent) error {
	occasion := fmt.Sprintf("drain %d %d", rec.GetEpoch(), rec.GetStartedAt())
	return d.agents.runHelper(ctx, saveHelper(a, occasion, orDuration(rec.GetSaveEach(), defaultSaveEach)))
}
