package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

// results are the events that most tests of the feed ask for.
var results = []agboxv1.AgentEventType{agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED}

// feed is one subscription to all agents.
type feed struct {
	*fixture
	grpc.ServerStreamingClient[agboxv1.SubscribeAgentsItem]
	cursors map[string]*agboxv1.AgentCursor
	end     context.CancelFunc
}

func (f *fixture) feed(req *agboxv1.SubscribeAgentsRequest) *feed {
	f.t.Helper()
	ctx, end := context.WithCancel(f.t.Context())
	s, err := f.agents.SubscribeAgents(ctx, req)
	f.must(err)
	_, err = s.Header()
	f.must(err)
	return &feed{f, s, map[string]*agboxv1.AgentCursor{}, end}
}

// until reads items up to the first one that is wanted, and returns it with all others.
func (f *feed) until(wanted func(*agboxv1.SubscribeAgentsItem) bool) (last *agboxv1.SubscribeAgentsItem, before []*agboxv1.SubscribeAgentsItem) {
	f.t.Helper()
	for {
		item, err := f.Recv()
		if err != nil {
			f.t.Fatalf("behind %v: %v", before, err)
		}
		if c := item.GetAgent().GetCursor(); c != nil {
			f.cursors[c.GetAgentId()] = c
		}
		if wanted(item) {
			return item, before
		}
		before = append(before, item)
	}
}

func synced(item *agboxv1.SubscribeAgentsItem) bool { return item.GetSynced() }

// outcomes counts the results of turns in items, by agent.
func outcomes(items []*agboxv1.SubscribeAgentsItem) map[string]int {
	n := map[string]int{}
	for _, item := range items {
		for _, e := range item.GetAgent().GetEvents() {
			if e.GetResult() != nil {
				n[e.GetAgentId()]++
			}
		}
	}
	return n
}

func hasResult(id string) func(*agboxv1.SubscribeAgentsItem) bool {
	return func(item *agboxv1.SubscribeAgentsItem) bool {
		return outcomes([]*agboxv1.SubscribeAgentsItem{item})[id] > 0
	}
}

// answers runs one turn of an IDLE agent.
func (f *fixture) answers(id, promptID string) {
	f.t.Helper()
	_, err := f.prompt(id, promptID, "work")
	f.must(err)
	f.claim(id)
	f.says(id, answer("m."+promptID, "done")...)
}

func TestAFeedShowsAllAgentsAndThenTheirChanges(t *testing.T) {
	f := newAgents(t)
	for _, id := range []string{"agent-1", "agent-2"} {
		_, err := f.createAgent(id, "", func(s *agboxv1.AgentSpec) { s.Labels = map[string]string{"team": id} })
		f.must(err)
		f.startAgent(id)
		f.answers(id, "before")
	}
	all := f.feed(&agboxv1.SubscribeAgentsRequest{IncludeSandboxes: true, EventTypes: results})
	_, items := all.until(synced)
	if len(items) != 3 || items[0].GetSandbox().GetSandbox().GetState() != agboxv1.SandboxState_SANDBOX_STATE_READY || len(outcomes(items)) > 0 {
		t.Fatalf("at the start: %v", items)
	}
	one := f.feed(&agboxv1.SubscribeAgentsRequest{LabelSelector: map[string]string{"team": "agent-2"}, EventTypes: results})
	if _, items := one.until(synced); len(items) != 1 || items[0].GetAgent().GetAgent().GetAgentId() != "agent-2" {
		t.Fatalf("with a label: %v", items)
	}
	f.answers("agent-1", "after")
	f.answers("agent-2", "after")
	all.until(hasResult("agent-1"))
	if last, before := one.until(hasResult("agent-2")); outcomes(before)["agent-1"] > 0 || last.GetAgent().GetAgent().GetState() != agentIdle {
		t.Errorf("with a label: %v, then %v", before, last)
	}
	f.report("boxx", agboxv1.SandboxState_SANDBOX_STATE_FAILED)
	all.until(func(item *agboxv1.SubscribeAgentsItem) bool {
		return item.GetSandbox().GetSandbox().GetState() == agboxv1.SandboxState_SANDBOX_STATE_FAILED
	})
	_, err := f.createAgent("agent-3", "")
	f.must(err)
	all.until(func(item *agboxv1.SubscribeAgentsItem) bool {
		return item.GetAgent().GetAgent().GetAgentId() == "agent-3"
	})
	_, err = f.agents.DeleteAgent(t.Context(), &agboxv1.DeleteAgentRequest{AgentId: "agent-3"})
	f.must(err)
	f.must(f.store.RemoveAgent(t.Context(), "agent-3"))
	all.until(func(item *agboxv1.SubscribeAgentsItem) bool {
		c := item.GetAgent()
		return c.GetCursor().GetAgentId() == "agent-3" && c.GetAgent() == nil
	})
}

// interrupted is a store in which something happens before its first read of events.
type interrupted struct {
	server.Store
	once   sync.Once
	happen func()
}

func (s *interrupted) AgentEvents(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentEvent, error) {
	s.once.Do(func() { s.happen() })
	return s.Store.AgentEvents(ctx, id, after, limit)
}

func TestAnItemOfAFeedIsNotOlderThanItsEvents(t *testing.T) {
	between := &interrupted{}
	f := newAgents(t, func(d *server.Deps) { between.Store, d.Store = d.Store, between })
	_, err := f.createAgent("agent", "")
	f.must(err)
	f.startAgent("agent")
	between.happen = func() { f.answers("agent", "meanwhile") } // after the agent was read
	item, _ := f.feed(&agboxv1.SubscribeAgentsRequest{EventTypes: results, Replay: true}).until(hasResult("agent"))
	if a := item.GetAgent(); a.GetAgent().GetState() != agentIdle || a.GetAgent().GetLastEventSequence() < a.GetCursor().GetSequence() {
		t.Errorf("%v", item)
	}
}

// TestAFeedContinuesAfterItsCursors: no result is lost or sent twice, whatever happened in between.
func TestAFeedContinuesAfterItsCursors(t *testing.T) {
	f := newAgents(t)
	for _, id := range []string{"agent-1", "agent-2", "removed"} {
		_, err := f.createAgent(id, "")
		f.must(err)
		if id != "removed" {
			f.startAgent(id)
		}
	}
	first := f.feed(&agboxv1.SubscribeAgentsRequest{EventTypes: results})
	first.until(synced)
	f.answers("agent-1", "seen")
	first.until(hasResult("agent-1"))
	first.end()

	f.answers("agent-1", "missed")
	f.answers("agent-2", "missed")
	_, err := f.createAgent("newer", "")
	f.must(err)
	f.startAgent("newer")
	f.answers("newer", "missed")
	_, err = f.agents.DeleteAgent(t.Context(), &agboxv1.DeleteAgentRequest{AgentId: "removed"})
	f.must(err)
	f.must(f.store.RemoveAgent(t.Context(), "removed"))

	req := &agboxv1.SubscribeAgentsRequest{EventTypes: results, Replay: true}
	for _, c := range first.cursors {
		req.Cursors = append(req.Cursors, c)
	}
	next := f.feed(req)
	_, items := next.until(synced)
	if got := outcomes(items); got["agent-1"] != 1 || got["agent-2"] != 1 || got["newer"] != 1 || len(got) != 3 {
		t.Errorf("results %v", got)
	}
	gone := 0
	for _, item := range items {
		if c := item.GetAgent(); c.GetCursor().GetAgentId() == "removed" && c.GetAgent() == nil {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("the removed agent: %d items", gone)
	}
}

// TestAFeedSaysWhatWasDropped: a client that was away longer than the history reaches back.
func TestAFeedSaysWhatWasDropped(t *testing.T) {
	f := newAgents(t)
	_, err := f.createAgent("agent-1", "")
	f.must(err)
	f.startAgent("agent-1")
	f.answers("agent-1", "first")
	at := &agboxv1.AgentCursor{AgentId: "agent-1", Sequence: 2}
	for n := range 12 {
		_, err := f.prompt("agent-1", fmt.Sprintf("prompt-%d", n), "work")
		f.must(err)
		f.claim("agent-1")
		var out []store.AgentOutput
		for m := range 1000 {
			out = append(out, said(fmt.Sprintf("m.%d.%d", n, m), "text")...)
		}
		f.says("agent-1", append(out, answer(fmt.Sprintf("e.%d", n), "done")...)...)
	}
	through := uint64(0)
	types := append([]agboxv1.AgentEventType{agboxv1.AgentEventType_AGENT_TRUNCATED}, results...)
	next := f.feed(&agboxv1.SubscribeAgentsRequest{EventTypes: types, Cursors: []*agboxv1.AgentCursor{at}})
	_, items := next.until(synced)
	for _, item := range items {
		through = max(through, item.GetAgent().GetDroppedThrough())
	}
	a, err := f.store.Agent(t.Context(), "agent-1")
	f.must(err)
	if through == 0 || through != a.Status.GetTruncatedThrough() || outcomes(items)["agent-1"] == 0 {
		t.Errorf("dropped through %d of %d; results %v", through, a.Status.GetTruncatedThrough(), outcomes(items))
	}
}

func TestAFeedRefusesWhatItCannotContinue(t *testing.T) {
	f := newAgents(t)
	_, err := f.createAgent("agent-1", "")
	f.must(err)
	cursor := func(id string, n uint64) *agboxv1.AgentCursor { return &agboxv1.AgentCursor{AgentId: id, Sequence: n} }
	for _, c := range []struct {
		req     *agboxv1.SubscribeAgentsRequest
		code    codes.Code
		reason  string
		message string
		about   map[string]string
	}{
		{&agboxv1.SubscribeAgentsRequest{EventTypes: []agboxv1.AgentEventType{999}}, codes.InvalidArgument, "INVALID_SPEC",
			"event_types[0] 999 is not known", map[string]string{"field": "event_types[0]"}},
		{&agboxv1.SubscribeAgentsRequest{Cursors: []*agboxv1.AgentCursor{{}}}, codes.InvalidArgument, "INVALID_SPEC",
			"cursors[0].agent_id is required", map[string]string{"field": "cursors[0].agent_id"}},
		{&agboxv1.SubscribeAgentsRequest{Cursors: []*agboxv1.AgentCursor{cursor("a", 1), cursor("a", 2)}}, codes.InvalidArgument, "INVALID_SPEC",
			"cursors[1].agent_id a was given before", map[string]string{"field": "cursors[1].agent_id"}},
		{&agboxv1.SubscribeAgentsRequest{Cursors: []*agboxv1.AgentCursor{cursor("agent-1", 100)}}, codes.OutOfRange, "AGENT_EVENT_SEQUENCE_EXPIRED",
			"agent agent-1 event sequence 100 is outside retained history", map[string]string{"agent_id": "agent-1"}},
	} {
		s, err := f.agents.SubscribeAgents(t.Context(), c.req)
		f.must(err)
		_, err = s.Recv()
		refused(t, err, c.code, c.reason, c.message, c.about)
	}
}

// TestASlowReaderOfAFeedGetsTheNewestState: and no writer waits for it.
func TestASlowReaderOfAFeedGetsTheNewestState(t *testing.T) {
	f := newAgents(t)
	_, err := f.createAgent("agent-1", "")
	f.must(err)
	f.startAgent("agent-1")
	s := f.feed(&agboxv1.SubscribeAgentsRequest{EventTypes: results})
	s.until(synced)
	const turns = 300
	for n := range turns {
		f.answers("agent-1", fmt.Sprintf("prompt-%d", n))
	}
	newest := f.getAgent("agent-1").GetLastEventSequence()
	got := 0
	s.until(func(item *agboxv1.SubscribeAgentsItem) bool {
		got += len(item.GetAgent().GetEvents())
		return item.GetAgent().GetCursor().GetSequence() == newest
	})
	if got != turns {
		t.Errorf("%d results of %d turns", got, turns)
	}
}

func TestAFeedEndsWithTheDaemon(t *testing.T) {
	f := newAgents(t)
	s := f.feed(&agboxv1.SubscribeAgentsRequest{})
	s.until(synced)
	f.must(f.shutdown(context.Background()))
	_, err := s.Recv()
	refused(t, err, codes.Unavailable, "UNAVAILABLE", "agboxd is stopping", nil)
}
