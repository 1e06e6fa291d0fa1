package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// EventOptions are the options of Events.
type EventOptions struct {
	// From is an anchor: only events with a greater sequence are delivered. 0: all that are retained.
	From uint64
	// Snapshot requests the newest event first, marked, and one synthetic EXEC_STARTED per active exec.
	Snapshot bool
	// Reconnect reconnects after a restart of the daemon and continues after the last event, until the context ends. A snapshot is not
	// repeated. Without it the iteration ends with an error that IsUnavailable.
	Reconnect bool
}

// Events iterates over the events of a sandbox, stored ones and then live ones, each once and in order. It ends
// without an error when the history was purged, and with one otherwise: the context's when that ended.
func (c *Client) Events(ctx context.Context, sandboxID string, o EventOptions) iter.Seq2[*agboxv1.SandboxEvent, error] {
	return func(yield func(*agboxv1.SandboxEvent, error) bool) {
		req := &agboxv1.SubscribeSandboxEventsRequest{SandboxId: sandboxID, FromSequence: o.From, IncludeCurrentSnapshot: o.Snapshot}
		subscribe(ctx, c, c.sandboxes.SubscribeSandboxEvents, req, o.Reconnect, nil, func(e *agboxv1.SandboxEvent, err error) bool {
			if err == nil && !e.GetSnapshot() {
				req.FromSequence = e.GetSequence()
			}
			return yield(e, err)
		})
	}
}

// AgentEventOptions say what AgentEvents delivers.
type AgentEventOptions struct {
	// From is an anchor: only events with a greater sequence are delivered. 0: all that are retained.
	From uint64
	// Reconnect is that of EventOptions.
	Reconnect bool
	// OnAway is called when the daemon has not answered a reconnect for a second, once until the next event. The iteration waits for it.
	// It may be nil.
	OnAway func()
}

// AgentEvents iterates over the events of an agent, stored ones and then live ones, each once and in order. Sequences may
// have gaps: superseded snapshots and the oldest turns are dropped. It ends without an error when the agent is deleted, and otherwise
// with an error: the context's if that ended.
func (c *Client) AgentEvents(ctx context.Context, agentID string, o AgentEventOptions) iter.Seq2[*agboxv1.AgentEvent, error] {
	return func(yield func(*agboxv1.AgentEvent, error) bool) {
		req := &agboxv1.SubscribeAgentEventsRequest{AgentId: agentID, FromSequence: o.From}
		subscribe(ctx, c, c.agents.SubscribeAgentEvents, req, o.Reconnect, o.OnAway, func(e *agboxv1.AgentEvent, err error) bool {
			if err == nil {
				req.FromSequence = e.GetSequence()
			}
			return yield(e, err)
		})
	}
}

// subscribe yields the events of a subscription, and the error that ended it unless the end was clean. With reconnect it subscribes
// again when the daemon went away; yield moves req's anchor along.
func subscribe[Req, E any](ctx context.Context, c *Client, m method[Req, grpc.ServerStreamingClient[E]], req Req, reconnect bool, onAway func(), yield func(*E, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var pause retry
	var opts []grpc.CallOption
	for stop := func() {}; ; stop = pause.notice(onAway) {
		more, err := stream(ctx, c, m, req, &pause, stop, yield, opts)
		switch {
		case !more || err == nil:
			return
		case !reconnect || !IsUnavailable(err):
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

// stream runs one subscription, and calls accepted once the daemon has accepted or refused it. more is false when the caller has had enough;
// a nil error is the clean end.
func stream[Req, E any](ctx context.Context, c *Client, m method[Req, grpc.ServerStreamingClient[E]], req Req, pause *retry, accepted func(), yield func(*E, error) bool, opts []grpc.CallOption) (more bool, err error) {
	sub, err := m(ctx, req, opts...)
	accepted()
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
		if !yield(e, nil) {
			return false, nil
		}
	}
}

// ended prefers the context's own error over the status made of it. The daemon knows the deadline too and may be the
// first to see it pass: then the context's end is a moment away and worth waiting for.
func ended(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	late := is(err, codes.Canceled) || is(err, codes.DeadlineExceeded)
	if ok && late && time.Until(deadline) < time.Second {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// AgentWatchOptions say what WatchAgents delivers.
type AgentWatchOptions struct {
	// Selector is for agents and sandboxes; empty: all.
	Selector map[string]string
	// Sandboxes adds the sandboxes.
	Sandboxes bool
	// EventTypes are the types of events to deliver; empty: none.
	EventTypes []agboxv1.AgentEventType
	// Cursors are those of an earlier watch, at most one for an agent: its newer events are delivered.
	Cursors []*agboxv1.AgentCursor
	// Replay delivers all retained events of agents without a cursor; set it to continue an earlier watch.
	Replay bool
	// Reconnect is that of EventOptions. Afterwards all objects are delivered again, and one more item with synced, but no event
	// is delivered twice and none is lost.
	Reconnect bool
	// OnAway is that of AgentEventOptions.
	OnAway func()
}

// WatchAgents iterates over the state of all agents and then over its changes; see SubscribeAgents of the API for the items. It always
// ends with an error: the context's if that ended.
func (c *Client) WatchAgents(ctx context.Context, o AgentWatchOptions) iter.Seq2[*agboxv1.SubscribeAgentsItem, error] {
	return func(yield func(*agboxv1.SubscribeAgentsItem, error) bool) {
		req := &agboxv1.SubscribeAgentsRequest{
			LabelSelector: o.Selector, IncludeSandboxes: o.Sandboxes, EventTypes: o.EventTypes, Cursors: slices.Clone(o.Cursors), Replay: o.Replay,
		}
		subscribe(ctx, c, c.agents.SubscribeAgents, req, o.Reconnect, o.OnAway, func(item *agboxv1.SubscribeAgentsItem, err error) bool {
			if err == nil {
				follow(req, item)
			}
			return yield(item, err)
		})
	}
}

// follow moves the request behind an item.
func follow(req *agboxv1.SubscribeAgentsRequest, item *agboxv1.SubscribeAgentsItem) {
	req.Replay = req.GetReplay() || item.GetSynced()
	change := item.GetAgent()
	if change == nil {
		return
	}
	req.Cursors = slices.DeleteFunc(req.GetCursors(), func(c *agboxv1.AgentCursor) bool { return c.GetAgentId() == change.GetCursor().GetAgentId() })
	if change.GetAgent() != nil {
		req.Cursors = append(req.Cursors, change.GetCursor())
	}
}
