package agent

import (
	"context"
	"maps"
	"strings"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/store"
)

// memory is what this daemon remembers of one agent; see package scratch.
type memory struct {
	// status is what the agent waits for. verified: a pass has judged it since the start.
	status   string
	verified bool
	// delivered identifies everything that was written to its inbox; see Observation.message.
	delivered string
	// alive is the newest exec of the agent that was observed running, started the newest that this daemon has started.
	alive, started string
	// transitions is how many of its transitions are counted. Those before counting started belong to an earlier daemon.
	transitions uint64
	counting    bool
	// helpers holds when this daemon started to wait for each command, by exec ID.
	helpers map[string]time.Time
}

// waited returns how long the daemon has waited for a command; 0: it does not wait.
func (m memory) waited(execID string) time.Duration {
	if at := m.helpers[execID]; !at.IsZero() {
		return max(time.Since(at), 1) // by the monotonic clock, which cannot be set
	}
	return 0
}

// Clone implements scratch.Record.
func (m memory) Clone() memory {
	m.helpers = maps.Clone(m.helpers)
	return m
}

// IsEmpty implements scratch.Record. A record lasts as long as its agent: a new one would count transitions from the start.
func (m memory) IsEmpty() bool { return false }

// Triggers returns the values of a metric label: why agents change their state.
func Triggers() (words []string) {
	for n := range agboxv1.AgentTrigger_name {
		if n != 0 {
			words = append(words, triggerWord(agboxv1.AgentTrigger(n)))
		}
	}
	return words
}

func triggerWord(t agboxv1.AgentTrigger) string {
	return strings.ToLower(enum.Word(t))
}

// countTransitions counts the transitions of an agent since the last pass, from all sources. Those before the first pass belong to an
// earlier daemon.
func (r *Reconciler) countTransitions(ctx context.Context, a store.Agent) {
	now := a.Status.GetTransitions()
	last := now
	r.scratch.Change(a.ID, func(s *memory) {
		if s.counting {
			last = s.transitions
		}
		s.transitions, s.counting = now, true
	})
	if last == now {
		return
	}
	list, err := r.cfg.Store.Transitions(ctx, a.ID, max(last, 1)-1, 0)
	if err != nil {
		return // the metric misses them
	}
	for i, tr := range list {
		if tr.GetNumber() > last {
			r.countTransition(list[:i], tr)
		}
	}
}

func (r *Reconciler) countTransition(before []*agboxv1.AgentTransition, tr *agboxv1.AgentTransition) {
	r.cfg.Metrics.AgentChanged(triggerWord(tr.GetTrigger()))
	switch n := len(before); {
	case tr.GetTrigger() == agboxv1.AgentTrigger_AGENT_TRIGGER_PROMPT_RECEIVED:
		r.cfg.Metrics.AgentPrompted()
	case tr.GetTrigger() == agboxv1.AgentTrigger_AGENT_TRIGGER_RESULT_RECEIVED && n > 0:
		r.cfg.Metrics.AgentAnswered(tr.GetOccurredAt().AsTime().Sub(before[n-1].GetOccurredAt().AsTime()))
	}
}
