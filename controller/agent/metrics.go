package agent

import (
	"context"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/store"
)

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
	last, known := r.counted(a.ID, a.Status.GetTransitions())
	if !known || last >= a.Status.GetTransitions() {
		return
	}
	list, err := r.cfg.Store.Transitions(ctx, a.ID, max(last, 1)-1, 0)
	if err != nil {
		return // the metric misses them
	}
	var before *agboxv1.AgentTransition
	for _, tr := range list {
		if tr.GetNumber() > last {
			r.countTransition(before, tr)
		}
		before = tr
	}
}

func (r *Reconciler) countTransition(before, tr *agboxv1.AgentTransition) {
	r.cfg.Metrics.AgentChanged(triggerWord(tr.GetTrigger()))
	if before != nil && tr.GetTrigger() == agboxv1.AgentTrigger_AGENT_TRIGGER_RESULT_RECEIVED {
		r.cfg.Metrics.AgentAnswered(tr.GetOccurredAt().AsTime().Sub(before.GetOccurredAt().AsTime()))
	}
}

// counted records that n transitions of an agent are counted, and returns the count before; not known: this daemon has counted none.
func (r *Reconciler) counted(id string, n uint64) (before uint64, known bool) {
	r.scratch.Change(id, func(s *memory) {
		before, known = s.transitions, s.counting
		s.transitions, s.counting = n, true
	})
	return before, known
}
