package server

import (
	"context"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// SubscribeAgentEvents implements agbox.v1.AgentService, complete and free of doubles as SubscribeSandboxEvents is: watch,
// read the newest sequence, then follow the cursor.
func (s *Server) SubscribeAgentEvents(req *agboxv1.SubscribeAgentEventsRequest, stream grpc.ServerStreamingServer[agboxv1.AgentEvent]) error {
	if err := required("agent_id", req.GetAgentId()); err != nil {
		return err
	}
	sub := &agentSubscription{Server: s, stream: stream, id: req.GetAgentId(), after: req.GetFromSequence(), gaps: req.GetFromSequence() == 0}
	changed, stop := s.deps.Store.WatchAgent(sub.id)
	defer stop()
	if err := sub.begin(stream.Context()); err != nil {
		return err
	}
	return s.follow(stream.Context(), changed, sub.sendBatch)
}

type agentSubscription struct {
	*Server
	stream grpc.ServerStreamingServer[agboxv1.AgentEvent]
	id     string
	// after is the sequence of the last event that was sent, or the client's anchor.
	after uint64
	// newest is the last stored sequence at the start of the subscription.
	newest uint64
	// gaps allows events to be dropped during the replay, because the client requested all retained events.
	gaps bool
}

// begin checks the anchor and sends the headers, by which the client knows that it is subscribed.
func (s *agentSubscription) begin(ctx context.Context) error {
	a, err := s.deps.Store.Agent(ctx, s.id)
	if err != nil {
		return err
	}
	s.newest = a.Status.GetLastSequence()
	if _, err := s.deps.Store.AgentEvents(ctx, s.id, s.after, 1); err != nil {
		return err
	}
	return s.stream.SendHeader(metadata.MD{})
}

func (s *agentSubscription) sendBatch(ctx context.Context) (more bool, err error) {
	events, err := s.deps.Store.AgentEvents(ctx, s.id, s.after, batch)
	if errdefs.IsOutOfRange(err) && s.gaps && s.after < s.newest {
		events, err = s.deps.Store.AgentEvents(ctx, s.id, 0, batch) // all that is kept is newer
	}
	if err != nil {
		return false, err
	}
	for _, e := range events {
		s.after = e.GetSequence()
		e.Replay = s.after <= s.newest
		if err := s.stream.Send(e); err != nil {
			return false, err
		}
	}
	return len(events) > 0, nil // how many are one batch depends on their size
}
