package server

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// batch is how many events are in memory for one subscriber at a time.
const batch = 256

type eventStore interface {
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	Events(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.SandboxEvent, error)
	EventsAfter(ctx context.Context, id string, c store.Cursor, limit int) ([]*agboxv1.SandboxEvent, error)
	Exec(ctx context.Context, execID string) (store.Exec, error)
	Watch(id string) (changed <-chan struct{}, stop func())
}

type events struct {
	*lifecycle
	store eventStore
}

// SubscribeSandboxEvents implements agbox.v1.SandboxService.
//
// The order prevents gaps and duplicates: watch, read the newest sequence, then follow the cursor. Every commit after the start
// of the watch leaves a tick, and the cursor alone decides which events are sent.
func (s *events) SubscribeSandboxEvents(req *agboxv1.SubscribeSandboxEventsRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	if err := required("sandbox_id", req.GetSandboxId()); err != nil {
		return err
	}
	sub := &subscription{events: s, stream: stream, id: req.GetSandboxId(), cursor: store.Cursor{After: req.GetFromSequence()}}
	changed, stop := s.store.Watch(sub.id)
	defer stop()
	if err := sub.begin(stream.Context(), req.GetIncludeCurrentSnapshot()); err != nil {
		return err
	}
	return s.follow(stream.Context(), changed, sub.sendBatch)
}

type subscription struct {
	*events
	stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]
	id     string
	// cursor is behind the last event that was sent, or is the client's anchor.
	cursor store.Cursor
	// newest is the last stored sequence at the start of the subscription.
	newest uint64
	// skip is a sequence that was sent as a snapshot; 0: none.
	skip uint64
}

// begin checks the anchor, sends the headers, by which the client knows that it is subscribed, and sends the snapshot.
func (s *subscription) begin(ctx context.Context, snapshot bool) error {
	sb, last, err := s.begun(ctx, snapshot)
	if err != nil {
		return err
	}
	s.newest = sb.LastSequence
	if s.cursor.After == 0 {
		s.cursor.GapsTo = s.newest
	}
	if _, err := s.store.EventsAfter(ctx, s.id, s.cursor, 1); err != nil {
		return err
	}
	if err := s.stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	if !snapshot {
		return nil
	}
	return s.sendSnapshot(sb, last)
}

// begun reads the sandbox and, for a snapshot, its newest event. If that event was dropped between the two reads, it reads both again.
func (s *subscription) begun(ctx context.Context, snapshot bool) (store.Sandbox, *agboxv1.SandboxEvent, error) {
	for {
		sb, err := s.store.Sandbox(ctx, s.id)
		if err != nil || !snapshot {
			return sb, nil, err
		}
		last, err := s.store.Events(ctx, s.id, sb.LastSequence-1, 1)
		switch {
		case errdefs.IsOutOfRange(err):
			continue
		case err != nil:
			return sb, nil, err
		case len(last) == 0:
			return sb, nil, fmt.Errorf("newest event %d of sandbox %s is missing: %w", sb.LastSequence, s.id, errdefs.ErrDataLoss)
		case last[0].GetSequence() == sb.LastSequence:
			return sb, last[0], nil
		}
	}
}

func (s *subscription) sendSnapshot(sb store.Sandbox, last *agboxv1.SandboxEvent) error {
	s.skip = last.GetSequence()
	last.Replay, last.Snapshot = true, true
	if err := s.stream.Send(last); err != nil {
		return err
	}
	for _, execID := range sb.ActiveExecs {
		e, err := s.store.Exec(s.stream.Context(), execID)
		if err != nil && !errdefs.IsDataLoss(err) { // one damaged record hides only its command
			return err
		}
		if err := s.stream.Send(snapshotExec(s.id, execID, e.Request.GetCommand(), sb.LastSequence, last.GetOccurredAt())); err != nil {
			return err
		}
	}
	return nil
}

func snapshotExec(sandboxID, execID string, command []string, newest uint64, at *timestamppb.Timestamp) *agboxv1.SandboxEvent {
	return &agboxv1.SandboxEvent{
		EventId: sandboxID + "-snapshot-" + execID, Sequence: newest, SandboxId: sandboxID,
		EventType: agboxv1.EventType_EXEC_STARTED, OccurredAt: at, Snapshot: true,
		Details: &agboxv1.SandboxEvent_Exec{Exec: &agboxv1.ExecEventDetails{
			ExecId: execID, ExecState: agboxv1.ExecState_EXEC_STATE_RUNNING, Command: store.EventCommand(command),
		}},
	}
}

// follow calls send until it reports that everything is sent, then again after each tick. The removal of the object ends it without an
// error.
func (l *lifecycle) follow(ctx context.Context, changed <-chan struct{}, send func(context.Context) (more bool, err error)) error {
	return l.whileServing(ctx, func(ctx context.Context) error {
		for {
			more, err := send(ctx)
			switch {
			case errdefs.IsNotFound(err):
				return nil // removed while we were reading
			case err != nil:
				return err
			case ctx.Err() != nil:
				return ctx.Err()
			case more:
				continue
			}
			select {
			case _, open := <-changed:
				if !open {
					return nil
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// sendBatch sends the events after the cursor, up to a batch. If the client is so slow that the history limit drops events before they
// are sent, it returns OUT_OF_RANGE, except in a replay from 0.
func (s *subscription) sendBatch(ctx context.Context) (more bool, err error) {
	events, err := s.store.EventsAfter(ctx, s.id, s.cursor, batch)
	if err != nil {
		return false, err
	}
	for _, e := range events {
		s.cursor.After = e.GetSequence()
		if s.cursor.After == s.skip {
			continue
		}
		e.Replay = s.cursor.After <= s.newest
		if err := s.stream.Send(e); err != nil {
			return false, err
		}
	}
	return len(events) == batch, nil
}
