package agent

import (
	"cmp"
	"fmt"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/internal/execid"
)

// Bounds of saving the work of a turn; they are part of the contract.
const (
	// stopSave bounds the save for the end of a sandbox.
	stopSave = 10 * time.Second
	// termSave bounds the save while others stop the container. With the time for a turn it is below what PID 1 waits, and that below the
	// 10 s of docker stop.
	termSave = 2 * time.Second
	// defaultSaveEach and defaultSaveAll bound the saves for a drain that sets no bounds, for each agent and in total.
	defaultSaveEach = 30 * time.Second
	defaultSaveAll  = 60 * time.Second
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

// observeSave observes the save of a turn that was cut off for a drain or for the end of its sandbox. A save that has started goes on also
// if a later daemon finds it, the drain is undone meanwhile, or a stop or the delete of the agent is requested.
func (v *Observation) observeSave() error {
	if !agentplan.Lives(v.a.Status.GetState()) || v.World.Process != agentplan.Ended {
		return nil
	}
	if v.World.Stopped && !v.World.Cancelled && v.cutOff {
		v.World.Save = agentplan.NotSaved // its container is gone
	}
	if !v.World.Cancelled {
		return nil
	}
	save := v.saveHelper()
	end, err := v.observeEnd(save)
	if err != nil {
		return fmt.Errorf("read its save command: %w", err)
	}
	run := v.a.Desired.GetRun()
	unwanted := !v.cutOff || run == storev1.AgentRun_AGENT_RUN_STOP || run == storev1.AgentRun_AGENT_RUN_DELETE && !v.World.InTurn
	if unwanted && (end == helperAbsent || end == helperNowhere) {
		return nil
	}
	v.World.Save = map[helperEnd]agentplan.Save{
		helperAbsent: agentplan.SaveDue, helperRuns: agentplan.SaveDue, helperDone: agentplan.Saved, helperMoot: agentplan.NoSave,
		helperFailed: agentplan.NotSaved, helperNowhere: agentplan.NotSaved,
	}[end]
	s := v.Sandbox.State
	isDown := v.World.Lost || s == agboxv1.SandboxState_SANDBOX_STATE_STOPPED || s == agboxv1.SandboxState_SANDBOX_STATE_FAILED
	if v.World.Save == agentplan.SaveDue && isDown {
		v.World.Save = agentplan.NotSaved
		v.settled = append(v.settled, settledHelper{helper: save, late: true}) // if it was requested, it must not start with the next resume
	}
	return nil
}

// saveHelper returns the save command.
func (v *Observation) saveHelper() helper {
	command, moot := v.a.Spec.GetSaveCommand(), 0
	if len(command) == 0 {
		command, moot = gitSave, exitNoWorkTree
	}
	h := v.helper(execid.ToSave, command, v.saveLimit())
	h.moot = moot
	return h
}

// saveLimit returns how long the save command may take: the bound of the end of its sandbox unless a drain sets one.
func (v *Observation) saveLimit() time.Duration {
	switch d := v.o.store.Drain(); {
	case v.World.Terminated:
		return termSave
	case v.savesFor(d) && saveLeft(d, v.at) <= 0:
		return 0
	case v.savesFor(d) || !v.World.Ending:
		return cmp.Or(time.Duration(max(d.GetSaveEach(), 0)), defaultSaveEach)
	}
	return stopSave
}
