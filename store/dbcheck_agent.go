package store

import (
	"fmt"
	"strings"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// agents checks every agent whose ID occurs in a record other than a reservation.
func (c *checker) agents() {
	names := map[string]string{}
	for _, id := range c.agentIDs() {
		if !c.has(bucketAgentID, id) {
			c.report(bucketAgentID, id, "the ID is not reserved, and there are records of it")
		}
		a := c.loader.agent(id) // the loader reports records that do not decode
		if a.Corrupt {
			continue
		}
		c.agent(a)
		if a.Name == "" || a.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE {
			continue
		}
		if other := names[a.Name]; other != "" {
			c.report(bucketAgentDesired, id, "agent %s holds the same name %q", other, a.Name)
		}
		names[a.Name] = id
	}
}

func (c *checker) agentIDs() []string {
	var ids []string
	seen := map[string]bool{}
	add := func(id string) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, bucket := range []string{bucketAgentConfig, bucketAgentDesired, bucketAgentStatus, bucketAgentPosition} {
		c.each(bucket, func(key string, _ []byte) { add(key) })
	}
	_ = c.tx.ForEach(func(name []byte, _ *bolt.Bucket) error { // fn returns no error
		for _, prefix := range []string{prefixAgentEvents, prefixAgentTransitions, prefixAgentPrompts, prefixAgentPromptIDs} {
			if id, ok := strings.CutPrefix(string(name), prefix); ok {
				add(id)
			}
		}
		return nil
	})
	return ids
}

// agent checks an agent whose records decode. If its delete was requested, some records may be removed already.
func (c *checker) agent(a *Agent) {
	c.agentPlace(a)
	c.agentProcess(a)
	if a.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE {
		return
	}
	c.agentPrompts(a)
	c.agentTransitions(a)
	c.agentEvents(a)
}

// agentPlace checks that an agent with a process is in a live sandbox. An agent without one can outlive its sandbox, which a rebuild may
// not know.
func (c *checker) agentPlace(a *Agent) {
	id := a.Desired.GetSandboxId()
	if id != a.Spec.GetSandboxId() {
		c.report(bucketAgentDesired, a.ID, "it is in sandbox %q, and its spec says %q", id, a.Spec.GetSandboxId())
	}
	live := hasRecord(c.tx, id) && !c.has(bucketDeletedAt, id)
	if !live && a.lives() {
		c.report(bucketAgentDesired, a.ID, "its sandbox %q is not there", id)
	}
}

// agentProcess checks that a live incarnation is an exec of the sandbox, and that the position is of the newest incarnation. Ended
// incarnations may belong to another sandbox, which may be gone.
func (c *checker) agentProcess(a *Agent) {
	n := a.Status.GetIncarnation()
	configs := prefixExecConfig + a.SandboxID
	switch {
	case n == 0 && a.lives():
		c.report(bucketAgentStatus, a.ID, "it is %s without a process", a.Status.GetState())
	case n > 0 && a.lives() && !c.has(configs, a.ExecID(n)):
		c.report(bucketAgentStatus, a.ID, "there is no exec %s", a.ExecID(n))
	case c.has(configs, a.ExecID(n+1)):
		c.report(bucketAgentStatus, a.ID, "its newest incarnation is %d, and there is exec %s", n, a.ExecID(n+1))
	}
	if p, err := c.position(a.ID); err == nil && p.GetIncarnation() != n {
		c.report(bucketAgentPosition, a.ID, "it is of incarnation %d, and the newest is %d", p.GetIncarnation(), n)
	}
}

// agentPrompts checks that each prompt has its ID, that the claimed prompt exists, and that the queue is within its limit.
func (c *checker) agentPrompts(a *Agent) {
	st, bucket := a.Status, prefixAgentPrompts+a.ID
	if busy := st.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY; busy != (st.GetPromptId() != "") {
		c.report(bucketAgentStatus, a.ID, "it is %s with prompt %q", st.GetState(), st.GetPromptId())
	}
	_, _, _ = c.claimedPrompt(a) // the loader reports errors
	c.eachPrompt(a.ID, func(n uint64, p *storev1.AgentPrompt) bool {
		var ref storev1.AgentPromptRef
		err := decode(get(c.tx, prefixAgentPromptIDs+a.ID, []byte(p.GetPromptId())), &ref)
		if err != nil || ref.GetNumber() != n || n == 0 || n > st.GetPrompts() {
			c.report(bucket, fmt.Sprint(n), "prompt %s is number %d of %d by its ID: %v", p.GetPromptId(), ref.GetNumber(), st.GetPrompts(), err)
		} else if string(ref.GetTextSha256()) != string(hashOf(p.GetText())) {
			c.report(bucket, fmt.Sprint(n), "its text is not the one of its ID")
		}
		return true
	})
	c.each(prefixAgentPromptIDs+a.ID, func(key string, v []byte) {
		var ref storev1.AgentPromptRef
		if err := decode(v, &ref); c.noted(prefixAgentPromptIDs+a.ID, key, "", err) == nil && ref.GetNumber() > st.GetPrompts() {
			c.report(prefixAgentPromptIDs+a.ID, key, "it is number %d of %d", ref.GetNumber(), st.GetPrompts())
		}
	})
	if n := c.countQueued(a); n > maxPrompts+1 { // one may have returned to a full queue
		c.report(bucket, "", "%d prompts wait", n)
	}
}

// agentTransitions checks that the newest transitions are there without a gap and lead to the state.
func (c *checker) agentTransitions(a *Agent) {
	bucket := prefixAgentTransitions + a.ID
	newest := a.Status.GetTransitions()
	next := newest - min(newest, maxTransitions) + 1
	last := &agboxv1.AgentTransition{}
	c.each(bucket, func(key string, v []byte) {
		tr, err := c.transition(a.ID, []byte(key), v)
		if err != nil {
			next++
			return // the loader reported it
		}
		if tr.GetNumber() != next || last.GetNumber() != 0 && last.GetTo() != tr.GetFrom() || tr.GetFrom() == tr.GetTo() {
			c.report(bucket, fmt.Sprint(tr.GetNumber()), "%s to %s comes after number %d, to %s", tr.GetFrom(), tr.GetTo(), next-1, last.GetTo())
		}
		next, last = tr.GetNumber()+1, tr
	})
	if next != newest+1 || last.GetNumber() != 0 && last.GetTo() != a.Status.GetState() {
		c.report(bucket, "", "they end with number %d, to %s, and the state is %s by number %d", next-1, last.GetTo(), a.Status.GetState(), newest)
	}
}

// agentEvents checks that the history has the recorded size, ends with the newest event, and has the recorded newest checkpoint.
func (c *checker) agentEvents(a *Agent) {
	st, bucket := a.Status, prefixAgentEvents+a.ID
	var n, bytes, last, checkpoint, told uint64
	c.each(bucket, func(key string, v []byte) {
		ev, err := c.agentEvent(a.ID, []byte(key), v)
		if err != nil || ev.GetSequence() <= st.GetTruncatedThrough() {
			return // reported, or about to be removed
		}
		n, bytes, last = n+1, bytes+uint64(len(v)), ev.GetSequence()
		if ev.GetEventType() == agboxv1.AgentEventType_AGENT_CHECKPOINT {
			checkpoint = last
		}
		if number := ev.GetTransition().GetNumber(); number != 0 {
			told = number
		}
		if ev.GetOccurredAt() == nil || ev.GetIncarnation() > st.GetIncarnation() {
			c.report(bucket, fmt.Sprint(last), "it has no time, or is of incarnation %d", ev.GetIncarnation())
		}
	})
	if n != st.GetEvents() || bytes != st.GetEventBytes() || last != st.GetLastSequence() {
		c.report(bucket, "", "there are %d of %d bytes up to %d, and counted are %d of %d up to %d",
			n, bytes, last, st.GetEvents(), st.GetEventBytes(), st.GetLastSequence())
	}
	if told != 0 && told != st.GetTransitions() {
		c.report(bucket, "", "the newest transition that they tell of is %d of %d", told, st.GetTransitions())
	}
	if checkpoint != st.GetCheckpointSequence() {
		c.report(bucket, fmt.Sprint(checkpoint), "it is the newest checkpoint, and known is %d", st.GetCheckpointSequence())
	}
}
