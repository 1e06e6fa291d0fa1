package server

import (
	"cmp"
	"context"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/conversation"
	"github.com/agbox/agbox/store"
)

const (
	// readers is the number of concurrent reads of conversations, each of which needs several times 32 MiB of memory.
	readers = 2
	// turnBytes bounds the turns of one answer, because gRPC clients accept 4 MiB by default.
	turnBytes = 3 << 20
)

type conversationStore interface {
	Agent(ctx context.Context, id string) (store.Agent, error)
	AgentEvents(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentEvent, error)
	Transitions(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentTransition, error)
	WatchAgent(id string) (changed <-chan struct{}, stop func())
}

// conversations handles the calls that read the history of agents.
type conversations struct {
	*lifecycle
	store   conversationStore
	reading chan struct{}
}

// GetAgentConversation implements agbox.v1.AgentService. It is made of the stored events at each call, by the same functions
// that make the context for a new process.
func (s *conversations) GetAgentConversation(ctx context.Context, req *agboxv1.GetAgentConversationRequest) (*agboxv1.GetAgentConversationResponse, error) {
	if err := required("agent_id", req.GetAgentId()); err != nil {
		return nil, err
	}
	a, err := s.store.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	events, err := s.allAgentEvents(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	resp := &agboxv1.GetAgentConversationResponse{Truncated: a.Status.GetTruncatedThrough() > 0}
	turns := conversation.Reconstruct(events)
	if req.GetAsContext() {
		if policy := a.Spec.GetContext(); policy.GetMode() != "none" {
			resp.Context = conversation.Context(turns, conversation.Checkpoint(events), policy, "")
		}
		return resp, nil
	}
	turns, resp.More = selectTurns(turns, req)
	for _, t := range turns {
		resp.Turns = append(resp.Turns, &agboxv1.ConversationTurn{
			Role: t.Role, Content: t.Content, Interrupted: t.Interrupted, At: timestamp(t.At), PromptId: t.PromptID,
			Sequence: t.Sequence,
		})
	}
	return resp, nil
}

// selectTurns returns the newest turns that were asked for, as far as they fit into one answer, but one at least.
func selectTurns(turns []conversation.Turn, req *agboxv1.GetAgentConversationRequest) (page []conversation.Turn, more bool) {
	end := len(turns)
	for end > 0 && req.GetBeforeSequence() > 0 && turns[end-1].Sequence >= req.GetBeforeSequence() {
		end--
	}
	most, size := int(req.GetLastTurns()), 0
	start := end
	for start > 0 && (most == 0 || end-start < most) {
		if size += len(turns[start-1].Content); size > turnBytes && start < end {
			return turns[start:end], true
		}
		start--
	}
	return turns[start:end], false
}

// allAgentEvents reads all retained events. If the oldest turns are dropped during the read, it starts again.
func (s *conversations) allAgentEvents(ctx context.Context, id string) (all []*agboxv1.AgentEvent, err error) {
	for after := uint64(0); ; {
		page, err := s.store.AgentEvents(ctx, id, after, batch)
		switch {
		case errdefs.IsOutOfRange(err) && after > 0:
			all, after = nil, 0
		case err != nil:
			return nil, err
		case len(page) == 0:
			return all, nil
		default:
			all, after = append(all, page...), page[len(page)-1].GetSequence()
		}
	}
}

// SubscribeAgentEvents implements agbox.v1.AgentService, complete and free of doubles as SubscribeSandboxEvents is: watch,
// read the newest sequence, then follow the cursor.
func (s *conversations) SubscribeAgentEvents(req *agboxv1.SubscribeAgentEventsRequest, stream grpc.ServerStreamingServer[agboxv1.AgentEvent]) error {
	if err := required("agent_id", req.GetAgentId()); err != nil {
		return err
	}
	sub := &agentSubscription{conversations: s, stream: stream, id: req.GetAgentId(), after: req.GetFromSequence(), gaps: req.GetFromSequence() == 0}
	changed, stop := s.store.WatchAgent(sub.id)
	defer stop()
	if err := sub.begin(stream.Context()); err != nil {
		return err
	}
	return s.follow(stream.Context(), changed, sub.sendBatch)
}

type agentSubscription struct {
	*conversations
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
	a, err := s.store.Agent(ctx, s.id)
	if err != nil {
		return err
	}
	s.newest = a.Status.GetLastSequence()
	if _, err := s.store.AgentEvents(ctx, s.id, s.after, 1); err != nil {
		return err
	}
	return s.stream.SendHeader(metadata.MD{})
}

func (s *agentSubscription) sendBatch(ctx context.Context) (more bool, err error) {
	events, err := s.store.AgentEvents(ctx, s.id, s.after, batch)
	if errdefs.IsOutOfRange(err) && s.gaps && s.after < s.newest {
		events, err = s.store.AgentEvents(ctx, s.id, 0, batch) // all that is kept is newer
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

// ListAgentTransitions implements agbox.v1.AgentService.
func (s *conversations) ListAgentTransitions(ctx context.Context, req *agboxv1.ListAgentTransitionsRequest) (*agboxv1.ListAgentTransitionsResponse, error) {
	if err := required("agent_id", req.GetAgentId()); err != nil {
		return nil, err
	}
	limit := cmp.Or(min(int(req.GetLimit()), batch), batch)
	list, err := s.store.Transitions(ctx, req.GetAgentId(), req.GetAfter(), limit)
	return &agboxv1.ListAgentTransitionsResponse{Transitions: list}, err
}
