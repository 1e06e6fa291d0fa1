package client_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// SubscribeAgents sends the agent for its cursor, and then for each change, unless a test gives the fake a feed.
func (s *fakeAgents) SubscribeAgents(req *agboxv1.SubscribeAgentsRequest, stream grpc.ServerStreamingServer[agboxv1.SubscribeAgentsItem]) error {
	s.mu.Lock()
	s.watches = append(s.watches, req)
	feed := s.feed
	s.mu.Unlock()
	if feed != nil {
		return feed(req, stream)
	}
	if s.follow != nil {
		s.follow()
	}
	for _, at := range req.GetCursors() {
		for {
			s.mu.Lock()
			changed, now, last := s.changed, s.now, uint64(len(s.events))
			s.mu.Unlock()
			if at.GetSequence() > last {
				return status.Error(codes.OutOfRange, "the cursor is newer than the last event")
			}
			if err := s.lost(); err != nil {
				return err
			}
			change := &agboxv1.AgentChange{Cursor: &agboxv1.AgentCursor{AgentId: at.GetAgentId(), Sequence: last}, Agent: now}
			if err := stream.Send(&agboxv1.SubscribeAgentsItem{Item: &agboxv1.SubscribeAgentsItem_Agent{Agent: change}}); err != nil {
				return err
			}
			select {
			case <-changed:
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		}
	}
	return status.Error(codes.InvalidArgument, "no cursor")
}

// breaks ends the first stream behind five items with an error, and sends no agent in the second one.
func (s *fakeAgents) breaks(_ *agboxv1.SubscribeAgentsRequest, stream grpc.ServerStreamingServer[agboxv1.SubscribeAgentsItem]) error {
	s.mu.Lock()
	first := len(s.watches) == 1
	s.mu.Unlock()
	change := func(id string, n uint64, a *agboxv1.AgentHandle) error {
		return stream.Send(&agboxv1.SubscribeAgentsItem{Item: &agboxv1.SubscribeAgentsItem_Agent{Agent: &agboxv1.AgentChange{
			Cursor: &agboxv1.AgentCursor{AgentId: id, Sequence: n}, Agent: a,
		}}})
	}
	synced := &agboxv1.SubscribeAgentsItem{Item: &agboxv1.SubscribeAgentsItem_Synced{Synced: true}}
	if !first {
		if err := stream.Send(synced); err != nil {
			return err
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	here := &agboxv1.AgentHandle{}
	for _, send := range []func() error{
		func() error { return change("one", 1, here) }, func() error { return change("two", 7, here) }, func() error { return stream.Send(synced) },
		func() error { return change("one", 3, here) }, func() error { return change("two", 0, nil) },
	} {
		if err := send(); err != nil {
			return err
		}
	}
	return status.Error(codes.Unavailable, "the connection broke")
}

func TestAWatchOfAgentsContinuesAfterTheLastItems(t *testing.T) {
	s, c := serveAgents(t)
	s.feed = s.breaks
	items := 0
	for _, err := range c.WatchAgents(t.Context(), client.AgentWatchOptions{Selector: map[string]string{"a": "b"}, Sandboxes: true, Reconnect: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if items++; items == 6 {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first, second := s.watches[0], s.watches[1]
	if first.GetReplay() || len(first.GetCursors()) > 0 || !first.GetIncludeSandboxes() || first.GetLabelSelector()["a"] != "b" {
		t.Errorf("first %v", first)
	}
	at := slices.Collect(func(yield func(uint64) bool) {
		for _, c := range second.GetCursors() {
			yield(c.GetSequence())
		}
	})
	if !second.GetReplay() || !slices.Equal(at, []uint64{3}) || second.GetLabelSelector()["a"] != "b" {
		t.Errorf("second %v", second)
	}
}
