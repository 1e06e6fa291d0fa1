package store

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// RequestDeleteKeepingAgents is RequestDelete, but the sandbox's agents are kept: see Destination for where they move.
func (s *Store) RequestDeleteKeepingAgents(ctx context.Context, id, reason string) (changed bool, err error) {
	return s.changeLive(ctx, id, func(t *txn, sb *Sandbox) bool { return t.requestDelete(sb, reason, true) })
}

// leaveAgents requests that the agents of a sandbox leave it, or that they are deleted, except those that move to another one. A busy agent
// is nudged, so that it can still save work outside the sandbox. Corrupt agents are not changed.
func (t *txn) leaveAgents(sb *Sandbox, keep bool) {
	for _, id := range sb.Agents {
		a := t.agentBefore(id)
		if a == nil || a.Corrupt || a.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE {
			continue
		}
		if d := t.draft(a); keep || d.movesAway() {
			d.stay(sb.Name)
		} else {
			d.nudge()
			t.deleteAgent(d)
		}
	}
}

// stay keeps an agent whose sandbox is deleted: it moves to its requested sandbox, else to the next sandbox with that name.
func (d *agentDraft) stay(home string) {
	d.Desired.Home = home
	d.nudge()
	d.intend(d.Desired.GetRun())
}

// movesAway reports whether the agent is requested to move to a live sandbox.
func (d *agentDraft) movesAway() bool {
	to := d.Desired.GetMoveTo()
	return d.Desired.GetRun() != storev1.AgentRun_AGENT_RUN_DELETE && to != "" && d.destination(d.live, d.nameHolder) == to
}

// welcome enqueues the agents that wait for a sandbox with this name.
func (t *txn) welcome(name string) {
	if name == "" {
		return
	}
	for _, id := range latestKeys(t.group.agents, t.index.agents) {
		if t.agentBefore(id).Desired.GetHome() == name {
			t.touched = append(t.touched, Change{AgentID: id})
		}
	}
}

// Leaving returns the number of agents of a sandbox that outlive it and still have a process in it or output that was not ingested. The
// sandbox's files are needed until it is 0. Errors: ErrUnavailable; ctx's.
func (s *Store) Leaving(ctx context.Context, sandboxID string) (n int, err error) {
	for _, id := range s.AgentsOf(sandboxID) {
		switch leaving, err := s.leaving(ctx, id); {
		case errdefs.IsNotFound(err), errdefs.IsDataLoss(err): // nothing to wait for
		case err != nil:
			return 0, fmt.Errorf("whether agent %s leaves: %w", id, err)
		case leaving:
			n++
		}
	}
	return n, nil
}

func (s *Store) leaving(ctx context.Context, id string) (bool, error) {
	a, err := s.Agent(ctx, id)
	switch {
	case err != nil, a.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE:
		return false, err
	case a.lives():
		return true, nil
	case a.Status.GetIncarnation() == 0:
		return false, nil
	}
	p, err := s.AgentPosition(ctx, id)
	return err == nil && !p.GetEnded(), err
}
