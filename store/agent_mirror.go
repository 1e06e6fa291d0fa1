package store

import (
	"hash/crc64"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// AgentMirror is handed all that is written of agents, so that they can be rebuilt when the database is lost. Its methods are
// called from the writer goroutine as those of Mirror are, and the same holds for them; what they are handed dies with the
// call. Whoever missed a change finds that out by AgentMark, and catches up with DumpAgent.
type AgentMirror interface {
	// Agent takes what one transaction has written of one agent, of whose events eventBytes are kept then.
	Agent(c *storev1.AgentChange, eventBytes uint64)
	// AgentGone takes an agent that was removed.
	AgentGone(r *storev1.RemovedAgent)
}

// agentLog is what the agents' mirror is handed of one group.
type agentLog struct {
	changes map[string]*storev1.AgentChange
	order   []string
	gone    []*storev1.RemovedAgent
}

// note takes what a request has staged of agents, before it is applied to tx.
func (l *agentLog) note(tx *bolt.Tx, ops []op) {
	for _, o := range ops {
		id, out := o.ofAgent()
		if out == nil {
			continue
		}
		c := l.changes[id]
		if c == nil {
			if l.changes == nil {
				l.changes = map[string]*storev1.AgentChange{}
			}
			c = &storev1.AgentChange{AgentId: id, Before: agentMark(tx, id)}
			l.changes[id], l.order = c, append(l.order, id)
		}
		c.Ops = append(c.Ops, out)
	}
}

// close says what the agents are after the group, which is applied to tx.
func (l *agentLog) close(tx *bolt.Tx, after facts) {
	for _, id := range l.order {
		if a, changed := after.agents[id]; !changed || a != nil {
			l.changes[id].After = agentMark(tx, id)
			continue
		}
		created := loader{tx, func(Corrupt) {}}.time(bucketAgentID, id)
		l.gone = append(l.gone, &storev1.RemovedAgent{AgentId: id, CreatedAt: toNanos(created)})
		delete(l.changes, id)
	}
}

func (l *agentLog) tell(m AgentMirror, after facts) {
	for _, id := range l.order {
		if c := l.changes[id]; c != nil {
			m.Agent(c, after.agents[id].statusOrNil().GetEventBytes())
		}
	}
	for _, r := range l.gone {
		m.AgentGone(r)
	}
}

var markTable = crc64.MakeTable(crc64.ECMA)

// agentMark names what is on record of an agent: every change of it raises the version in its status, or moves its position,
// until it is being removed. 0: there is no such agent.
func agentMark(tx *bolt.Tx, id string) uint64 {
	status := get(tx, bucketAgentStatus, []byte(id))
	if status == nil {
		return 0
	}
	sum := crc64.Update(crc64.Checksum(status, markTable), markTable, get(tx, bucketAgentPosition, []byte(id)))
	return max(sum, 1)
}
