package controller

import (
	"context"
	"strings"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// AgentTriggers are the values of a metric label: why agents change their state.
func AgentTriggers() (words []string) {
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

// countTransitions counts, whoever made them, the changes of an agent since the last pass. Those of an earlier daemon are its.
func (c *Controller) countTransitions(ctx context.Context, a store.Agent) {
	last, known := c.agentBoard.counted(a.ID, a.Status.GetTransitions())
	if !known || last >= a.Status.GetTransitions() {
		return
	}
	list, err := c.cfg.Store.Transitions(ctx, a.ID, max(last, 1)-1, 0)
	if err != nil {
		return // the metric misses them
	}
	var before *agboxv1.AgentTransition
	for _, tr := range list {
		if tr.GetNumber() > last {
			c.countTransition(before, tr)
		}
		before = tr
	}
}

func (c *Controller) countTransition(before, tr *agboxv1.AgentTransition) {
	c.cfg.Metrics.AgentChanged(triggerWord(tr.GetTrigger()))
	if before != nil && tr.GetTrigger() == agboxv1.AgentTrigger_AGENT_TRIGGER_RESULT_RECEIVED {
		c.cfg.Metrics.AgentAnswered(tr.GetOccurredAt().AsTime().Sub(before.GetOccurredAt().AsTime()))
	}
}
