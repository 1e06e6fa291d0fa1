package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestASandboxGoesWithItsAgents(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	for i, id := range []string{"a-1", "a-2", "a-3"} {
		_, err := s.CreateAgent(ctx, id, fmt.Sprintf("name-%d", i), agentSpec("box"))
		must(t, err)
	}
	makeIdle(t, s, "a-1")
	_, err := s.RequestDelete(ctx, "box", "delete_requested")
	must(t, err)
	for _, a := range s.Agents(AgentFilter{}) {
		if a.Desired.GetRun() != storev1.AgentRun_AGENT_RUN_DELETE {
			t.Errorf("%s is wanted %s", a.ID, a.Desired.GetRun())
		}
		if _, err := s.AgentByName(ctx, a.Name); !errdefs.IsNotFound(err) {
			t.Errorf("name %s is held: %v", a.Name, err)
		}
	}
	isGone := Report{Generation: 2, Events: []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_DELETED, deleted)}}
	if err := s.RemoveAgent(ctx, "a-1"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("removed with an active exec: %v", err)
	}
	endExec(t, s, "a-1.1")
	for _, id := range []string{"a-1", "a-2", "a-3"} {
		if err := s.Report(ctx, "box", isGone); !errdefs.IsFailedPrecondition(err) {
			t.Fatalf("deleted with agents: %v", err)
		}
		must(t, s.RemoveAgent(ctx, id))
	}
	must(t, s.Report(ctx, "box", isGone))
	must(t, s.PurgeSandbox(ctx, "box"))
	must(t, s.view(ctx, func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			if k, _ := b.Cursor().First(); k != nil && strings.HasPrefix(string(name), "agent") && string(name) != bucketAgentID {
				t.Errorf("%s is left in %s", k, name)
			}
			return nil
		})
	}))
	makeReady(t, s, "new")
	spec := agentSpec("new")
	if _, err := s.CreateAgent(ctx, "a-1", "name-0", spec); reasonOf(err) != "AGENT_ID_ALREADY_EXISTS" {
		t.Errorf("an ID is used twice: %v", err)
	}
	_, err = s.CreateAgent(ctx, "a-4", "name-0", spec)
	must(t, err)
}

// TestAnInterruptedRemovalStartsAgain: the agent is readable until the last transaction of its removal.
func TestAnInterruptedRemovalStartsAgain(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	turn(t, s, 1, 3*purgeBatch, "text")
	endExec(t, s, "agent.1")
	_, err := s.RequestAgentDelete(ctx, "agent")
	must(t, err)
	must(t, s.update(ctx, func(t *txn) error {
		_, err := t.removeAgent("agent")
		return err
	}))
	must(t, s.Close())
	checkDatabase(t, s.o.Path)
	s = open(t, s.o)
	if ids := s.LiveAgentIDs(); len(ids) != 1 {
		t.Fatalf("agents: %v", ids)
	}
	must(t, s.RemoveAgent(ctx, "agent"))
	if err := s.RemoveAgent(ctx, "agent"); reasonOf(err) != "AGENT_NOT_FOUND" {
		t.Errorf("removed twice: %v", err)
	}
	if len(s.AgentsOf("box")) != 0 {
		t.Errorf("the sandbox has %v", s.AgentsOf("box"))
	}
}

func TestRefusalsOfAgents(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	_, err := s.CreateAgent(ctx, "agent", "web", agentSpec("box"))
	must(t, err)
	makeReady(t, s, "full")
	fill(t, s, maxAgents, func(i int) {
		_, err := s.CreateAgent(ctx, fmt.Sprintf("full-%d", i), "", agentSpec("full"))
		must(t, err)
	})
	makeReady(t, s, "going")
	accepted(t, s.RequestDelete, "going")
	makeDeleted(t, s, "gone")
	create := func(id, name, box string) error {
		check := s.CheckCreateAgent(ctx, id, name, agentSpec(box))
		_, err := s.CreateAgent(ctx, id, name, agentSpec(box))
		if fmt.Sprint(check) != fmt.Sprint(err) {
			t.Errorf("the check says %v, the create %v", check, err)
		}
		return err
	}
	queue := func(id, promptID, text string) error {
		_, err := s.QueuePrompt(ctx, id, promptID, text)
		return err
	}
	must(t, queue("agent", "p-1", "text"))
	for name, c := range map[string]struct {
		err    error
		reason string
		is     func(error) bool
	}{
		"ID taken":            {create("agent", "", "box"), "AGENT_ID_ALREADY_EXISTS", errdefs.IsAlreadyExists},
		"name taken":          {create("other", "web", "box"), "AGENT_NAME_ALREADY_EXISTS", errdefs.IsAlreadyExists},
		"no sandbox":          {create("other", "", "none"), "SANDBOX_NOT_FOUND", errdefs.IsNotFound},
		"sandbox goes":        {create("other", "", "going"), "AGENT_INVALID_STATE", errdefs.IsFailedPrecondition},
		"sandbox is gone":     {create("other", "", "gone"), "AGENT_INVALID_STATE", errdefs.IsFailedPrecondition},
		"sandbox is full":     {create("other", "", "full"), "AGENTS_FULL", errdefs.IsResourceExhausted},
		"an ID with a dot":    {create("other.1", "", "box"), "", errdefs.IsInvalidArgument},
		"too long an ID":      {create(strings.Repeat("x", 181), "", "box"), "", errdefs.IsInvalidArgument},
		"prompt to nobody":    {queue("none", "p-1", "text"), "AGENT_NOT_FOUND", errdefs.IsNotFound},
		"prompt ID taken":     {queue("agent", "p-1", "other text"), "PROMPT_ID_ALREADY_EXISTS", errdefs.IsAlreadyExists},
		"an empty prompt":     {queue("agent", "p-2", ""), "", errdefs.IsInvalidArgument},
		"a prompt of no text": {queue("agent", "p-2", "\xff"), "", errdefs.IsInvalidArgument},
	} {
		if reasonOf(c.err) != c.reason || !c.is(c.err) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if changed, err := s.RequestDelete(ctx, "full", "delete_requested"); !changed || err != nil {
		t.Errorf("delete with %d agents: %v", maxAgents, err)
	}
}

func TestAnAgentOfALostDatabaseIsNotCreatedAgain(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	startExec(t, s, "box", "agent.1") // as rebuilt with its sandbox
	if _, err := s.CreateAgent(ctx, "agent", "", agentSpec("box")); reasonOf(err) != "AGENT_ID_ALREADY_EXISTS" {
		t.Errorf("%v", err)
	}
	_, err := s.CreateAgent(ctx, "agen", "", agentSpec("box"))
	must(t, err)
}
