package store

import (
	"slices"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
)

// agentsIn returns the sorted IDs of the agents whose record names this sandbox.
func (t *txn) agentsIn(sandboxID string) (ids []string) {
	for _, id := range latestKeys(t.group.agents, t.index.agents) {
		if t.agentBefore(id).SandboxID == sandboxID {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// meetProcesses sets the incarnation of a rebuilt agent to that of its newest recorded exec. A crash of the host can lose the agent's last
// changes but keep the exec; its number is then used, and which prompts the process received is unknown.
func (t *txn) meetProcesses(id string) {
	a := t.agentBefore(id)
	if a == nil || a.Corrupt {
		return
	}
	newest := t.newestProcess(a)
	if newest <= a.Status.GetIncarnation() {
		return
	}
	d := t.draft(a)
	d.transition(Transition{
		Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_RECONCILIATION,
		Reason:  "its records were rebuilt, and they do not know its newest process",
	})
	d.Status.Incarnation, d.wake = newest, true
	d.put(bucketAgentPosition, id, &storev1.AgentPosition{Incarnation: newest})
	d.save()
}

func (t *txn) newestProcess(a *Agent) (newest uint64) {
	for k := range records(t.tx, prefixExecConfig+a.SandboxID, []byte(a.ID+".")) {
		id, n, ok := execid.OfAgent(string(k))
		if !ok || id != a.ID {
			return newest
		}
		newest = max(newest, n)
	}
	return newest
}
