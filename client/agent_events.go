package client

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// AgentEventOptions say what AgentEvents delivers.
type AgentEventOptions struct {
	// From is an anchor: only events with a greater sequence are delivered. 0: all that are retained.
	From uint64
	// Reconnect reconnects after a restart of the daemon and continues after the last event, until the context ends. Without it the
	// iteration ends with an error that IsUnavailable.
	Reconnect bool
}

// AgentEvents iterates over the events of an agent, stored ones and then live ones, each once and in order. Sequences may
// have gaps: superseded snapshots and the oldest turns are dropped. It ends without an error when the agent is deleted, and otherwise
// with an error: the context's if that ended.
func (c *Client) AgentEvents(ctx context.Context, agentID string, o AgentEventOptions) iter.Seq2[*agboxv1.AgentEvent, error] {
	return func(yield func(*agboxv1.AgentEvent, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		req := &agboxv1.SubscribeAgentEventsRequest{AgentId: agentID, FromSequence: o.From}
		var pause retry
		var opts []grpc.CallOption
		for {
			more, err := c.agentStream(ctx, req, &pause, yield, opts)
			switch {
			case !more || err == nil:
				return
			case !o.Reconnect || !IsUnavailable(err):
				yield(nil, ended(ctx, err))
				return
			}
			opts = []grpc.CallOption{grpc.WaitForReady(true)}
			if pause.wait(ctx) != nil {
				yield(nil, context.Cause(ctx))
				return
			}
		}
	}
}

// agentStream is stream for an agent.
func (c *Client) agentStream(ctx context.Context, req *agboxv1.SubscribeAgentEventsRequest, pause *retry, yield func(*agboxv1.AgentEvent, error) bool, opts []grpc.CallOption) (more bool, err error) {
	sub, err := c.agents.SubscribeAgentEvents(ctx, req, opts...)
	if err != nil {
		return true, c.fromStatus(err)
	}
	for {
		e, err := sub.Recv()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return true, c.fromStatus(err)
		}
		pause.reset()
		req.FromSequence = e.GetSequence()
		if !yield(e, nil) {
			return false, nil
		}
	}
}
