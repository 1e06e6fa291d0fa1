package store

import (
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store/internal/txlog"
)

// soundAgents returns a closed database with a BUSY agent and a waiting prompt, a named agent with a checkpoint, and a half-removed agent.
func soundAgents(t *testing.T) string {
	t.Helper()
	s, err := Open(ctx, newClock().options(testOptions(t)))
	must(t, err)
	withAgent(t, s, "busy")
	makeIdle(t, s, "busy")
	makeBusy(t, s, "busy", "p-1")
	prompt(t, s, "busy", "p-2")
	_, err = s.CreateAgent(ctx, "named", "web", agentSpec("box"))
	must(t, err)
	makeIdle(t, s, "named")
	ingest(t, s, "named", said(checkpointEvent("c"))...)
	withAgent(t, s, "half")
	_, err = s.RequestAgentDelete(ctx, "half")
	must(t, err)
	must(t, s.update(ctx, func(tx *txn) error {
		tx.stage(op{Kind: txlog.DropBucket, Bucket: prefixAgentEvents + "half"})
		return nil
	}))
	must(t, s.Close())
	return s.o.Path
}

// altered returns a record of the database after fn changed it.
func altered[M proto.Message](t *testing.T, path, bucket, key string, m M, fn func(M)) []byte {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.View(func(tx *bolt.Tx) error { return decode(get(tx, bucket, []byte(key)), m) }))
	must(t, db.Close())
	fn(m)
	return message(t, m)
}

func TestTheCheckFindsDamageOfAgents(t *testing.T) {
	status := func(fn func(*agentStatus)) func(*testing.T, string) []byte {
		return func(t *testing.T, path string) []byte {
			return altered(t, path, bucketAgentStatus, "busy", &agentStatus{}, fn)
		}
	}
	desired := func(fn func(*agentDesired)) func(*testing.T, string) []byte {
		return func(t *testing.T, path string) []byte {
			return altered(t, path, bucketAgentDesired, "busy", &agentDesired{}, fn)
		}
	}
	is := func(b []byte) func(*testing.T, string) []byte { return func(*testing.T, string) []byte { return b } }
	first := string(encodeInt(1))
	for name, row := range map[string]struct {
		bucket, key string
		value       func(*testing.T, string) []byte
		want        string
	}{
		"an ID that is not reserved": {bucketAgentID, "busy", is(nil), "I2 agent busy: its ID is not reserved"},
		"no spec":                    {bucketAgentConfig, "busy", is(nil), "agent-config/busy: AgentSpec is missing"},
		"no intent":                  {bucketAgentDesired, "busy", is([]byte{}), "agent-desired/busy: no intent in it"},
		"another sandbox":            {bucketAgentDesired, "busy", desired(func(d *agentDesired) { d.SandboxId = "none" }), `agent-desired/busy: it is in sandbox "none", and its spec says "box"`},
		"a name of another":          {bucketAgentDesired, "busy", desired(func(d *agentDesired) { d.Name = "web" }), "I3 agent name web: agents busy and named both hold it"},
		"no process":                 {bucketAgentStatus, "busy", status(func(st *agentStatus) { st.Incarnation = 0 }), "I20 agent busy: its newest incarnation is 0, and exec busy.1 is on record"},
		"a process of later":         {bucketAgentStatus, "busy", status(func(st *agentStatus) { st.Incarnation = 2 }), "I20 agent busy: it is AGENT_STATE_BUSY, and no exec of its incarnation 2 is on record"},
		"busy without a prompt":      {bucketAgentStatus, "busy", status(func(st *agentStatus) { st.PromptId = "" }), `I20 agent busy: it is AGENT_STATE_BUSY with prompt ""`},
		"a prompt that is not there": {prefixAgentPrompts + "busy", first, is(nil), "agent-prompts:busy/1: AgentPrompt is missing"},
		"a prompt with another text": {prefixAgentPrompts + "busy", string(encodeInt(2)), is(message(t, &storev1.AgentPrompt{PromptId: "p-2", Text: "x"})), "agent-prompts:busy/2: its text is not the one of its ID"},
		"a prompt without its ID":    {prefixAgentPromptIDs + "busy", "p-2", is(nil), `I22 agent busy: prompt "p-2" is number 2 of 2, and 0 by its ID`},
		"a state that came from nowhere": {bucketAgentStatus, "busy", status(func(st *agentStatus) { st.State, st.PromptId = agentIdle, "" }),
			"I22 agent busy: its transitions end with number 3 in AGENT_STATE_BUSY, and it is AGENT_STATE_IDLE"},
		"a transition that is missing": {prefixAgentTransitions + "busy", string(encodeInt(2)), is(nil), "I22 agent busy: transition 3 is at number 3, and 2 is next"},
		"half a transition":            {bucketAgentStatus, "busy", status(func(st *agentStatus) { st.Transitions++ }), "agent-events:busy: the newest transition that they tell of is 3 of 4"},
		"an event that is missing":     {prefixAgentEvents + "busy", first, is(nil), "I22 agent busy: there are 5 events up to 6, and counted are 6 up to 6"},
		"an event that does not decode": {prefixAgentEvents + "busy", first, is([]byte("\xff")),
			"agent-events:busy/1: decode AgentEvent"},
		"an event of another place": {prefixAgentEvents + "busy", first, is(message(t, &agboxv1.AgentEvent{Sequence: 9, AgentId: "busy"})), "agent-events:busy/1: it says that it is event 9"},
		"a checkpoint that is not known": {bucketAgentStatus, "named", func(t *testing.T, path string) []byte {
			return altered(t, path, bucketAgentStatus, "named", &agentStatus{}, func(st *agentStatus) { st.CheckpointSequence = 0 })
		}, "agent-events:named/3: it is the newest checkpoint, and known is 0"},
		"read of another incarnation": {bucketAgentPosition, "busy", is(message(t, &storev1.AgentPosition{Incarnation: 9})), "I21 agent busy: its output was read from incarnation 9, but the newest is 1"},
		"records of nobody":           {prefixAgentEvents + "nobody", first, is([]byte("\xff")), "I2 agent nobody: its ID is not reserved"},
		"an epoch of another width":   {bucketMeta, keyEpoch, is([]byte("x")), "meta/epoch: integer of 1 bytes"},
		"a drain that does not decode": {bucketMeta, keyDrain, is([]byte("\xff")),
			"meta/drain: decode DrainRecord"},
	} {
		t.Run(name, func(t *testing.T) {
			path := soundAgents(t)
			checkDatabase(t, path)
			change(t, path, row.bucket, row.key, row.value(t, path))
			all := findings(t, path)
			if len(all) == 0 || !strings.Contains(strings.Join(all, "\n"), row.want) {
				t.Errorf("%s is not in\n%s", row.want, strings.Join(all, "\n"))
			}
		})
	}
}
