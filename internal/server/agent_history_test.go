package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

var anyAgent store.AgentFilter

// talked is an agent that has answered one prompt and works on a second one.
func talked(t *testing.T, f *fixture, change ...func(*agboxv1.AgentSpec)) {
	t.Helper()
	_, err := f.createAgent("agent-1", "bot", change...)
	f.must(err)
	f.startAgent("agent-1")
	for i, text := range []string{"first question", "second question"} {
		_, err := f.prompt("agent-1", fmt.Sprintf("prompt-%d", i+1), text)
		f.must(err)
	}
	f.claim("agent-1")
	f.says("agent-1", append([]store.AgentOutput{checkpointed("half way")}, answer("m.1", "first answer")...)...)
	f.claim("agent-1")
	f.says("agent-1", said("m.2", "second ans")...)
}

func TestConversationAsTurns(t *testing.T) {
	f := newAgents(t)
	talked(t, f)
	resp, err := f.agents.GetAgentConversation(t.Context(), &agboxv1.GetAgentConversationRequest{AgentId: "agent-1"})
	f.must(err)
	var got []string
	for _, turn := range resp.GetTurns() {
		got = append(got, turn.GetRole()+": "+turn.GetContent())
		if turn.GetAt() == nil || turn.GetPromptId() == "" {
			t.Errorf("lacks something: %v", turn)
		}
	}
	want := "user: first question|assistant: first answer|user: second question|assistant: second ans"
	if strings.Join(got, "|") != want || resp.GetTruncated() || resp.GetContext() != "" {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if last := resp.GetTurns()[3]; !last.GetInterrupted() {
		t.Errorf("its message is not complete: %v", last)
	}
	resp, err = f.agents.GetAgentConversation(t.Context(), &agboxv1.GetAgentConversationRequest{AgentId: "agent-1", LastTurns: 2})
	if err != nil || len(resp.GetTurns()) != 2 || resp.GetTurns()[0].GetContent() != "second question" {
		t.Errorf("the last two: %v, %v", resp, err)
	}
}

func TestConversationAsContext(t *testing.T) {
	f := newAgents(t)
	talked(t, f)
	req := &agboxv1.GetAgentConversationRequest{AgentId: "agent-1", AsContext: true}
	resp, err := f.agents.GetAgentConversation(t.Context(), req)
	f.must(err)
	for _, part := range []string{"half way", "first question", "first answer", "second ans"} {
		if !strings.Contains(resp.GetContext(), part) {
			t.Errorf("lacks %q:\n%s", part, resp.GetContext())
		}
	}
	if len(resp.GetTurns()) != 0 {
		t.Error("has turns as well")
	}
	f = newAgents(t)
	talked(t, f, func(s *agboxv1.AgentSpec) { s.Context = &agboxv1.AgentContextPolicy{Mode: "none"} })
	if resp, err := f.agents.GetAgentConversation(t.Context(), req); err != nil || resp.GetContext() != "" {
		t.Errorf("with mode none: %v, %v", resp, err)
	}
}

func recvAgent(t testing.TB, s grpc.ServerStreamingClient[agboxv1.AgentEvent], n int) []*agboxv1.AgentEvent {
	t.Helper()
	var out []*agboxv1.AgentEvent
	for range n {
		e, err := s.Recv()
		if err != nil {
			t.Fatalf("after %d events: %v", len(out), err)
		}
		out = append(out, e)
	}
	return out
}

func (f *fixture) subscribeAgent(from uint64) grpc.ServerStreamingClient[agboxv1.AgentEvent] {
	f.t.Helper()
	s, err := f.agents.SubscribeAgentEvents(f.t.Context(), &agboxv1.SubscribeAgentEventsRequest{AgentId: "agent-1", FromSequence: from})
	f.must(err)
	_, err = s.Header() // it is subscribed
	f.must(err)
	return s
}

func TestAgentEventsAreReplayedAndFollowed(t *testing.T) {
	f := newAgents(t)
	talked(t, f)
	newest := f.getAgent("agent-1").GetLastEventSequence()
	s := f.subscribeAgent(0)
	f.says("agent-1", answer("m.3", "done")...)
	last := uint64(0)
	for live := false; !live; {
		e := recvAgent(t, s, 1)[0]
		if e.GetSequence() <= last || e.GetAgentId() != "agent-1" {
			t.Errorf("behind %d: %v", last, e)
		}
		last = e.GetSequence()
		if e.GetReplay() != (last <= newest) {
			t.Errorf("newest was %d: %v", newest, e)
		}
		live = e.GetEventType() == agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED && last > newest
	}
	if e := recvAgent(t, f.subscribeAgent(last-1), 1)[0]; e.GetSequence() != last {
		t.Errorf("behind an anchor: %v", e)
	}
	refusedStream := f.subscribeError(t, last+100)
	refused(t, refusedStream, codes.OutOfRange, "AGENT_EVENT_SEQUENCE_EXPIRED",
		fmt.Sprintf("agent agent-1 event sequence %d is outside retained history", last+100), map[string]string{"agent_id": "agent-1"})
}

func (f *fixture) subscribeError(t *testing.T, from uint64) error {
	t.Helper()
	s, err := f.agents.SubscribeAgentEvents(t.Context(), &agboxv1.SubscribeAgentEventsRequest{AgentId: "agent-1", FromSequence: from})
	if err == nil {
		_, err = s.Recv()
	}
	return err
}

func TestAgentEventsEndWithTheAgent(t *testing.T) {
	f := newAgents(t)
	_, err := f.createAgent("agent-1", "")
	f.must(err)
	s := f.subscribeAgent(0)
	_, err = f.agents.DeleteAgent(t.Context(), &agboxv1.DeleteAgentRequest{AgentId: "agent-1"})
	f.must(err)
	f.must(f.store.RemoveAgent(t.Context(), "agent-1"))
	for err == nil {
		_, err = s.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
}

func TestAgentEventsEndWithTheDaemon(t *testing.T) {
	for reason, message := range map[string]string{"UNAVAILABLE": "agboxd is stopping", "DRAINING": "agboxd is draining and stopping: reboot"} {
		f := newAgents(t)
		_, err := f.createAgent("agent-1", "")
		f.must(err)
		s := f.subscribeAgent(f.getAgent("agent-1").GetLastEventSequence())
		if reason == "DRAINING" {
			_, err := f.store.StartDrain(t.Context(), store.DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_PARK, Reason: "reboot"})
			f.must(err)
		}
		f.must(f.shutdown(context.Background()))
		_, err = s.Recv()
		refused(t, err, codes.Unavailable, reason, message, nil)
	}
}

// cutting is a store that has dropped what was read up to, whenever a second page is read.
type cutting struct {
	*store.Store
	cuts *int
}

func (c cutting) AgentEvents(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentEvent, error) {
	if after > 0 && *c.cuts > 0 {
		*c.cuts--
		return nil, errdefs.ErrOutOfRange
	}
	return c.Store.AgentEvents(ctx, id, after, limit)
}

func TestAConversationReadSurvivesConcurrentTrims(t *testing.T) {
	cuts := 0
	f := newAgents(t, func(d *server.Deps) { d.Store = cutting{d.Store.(*store.Store), &cuts} })
	talked(t, f)
	cuts = 3
	resp, err := f.agents.GetAgentConversation(t.Context(), &agboxv1.GetAgentConversationRequest{AgentId: "agent-1"})
	if err != nil || len(resp.GetTurns()) != 4 || cuts != 0 {
		t.Errorf("got %v, %v with %d cuts left", resp, err, cuts)
	}
}
