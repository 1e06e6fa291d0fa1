package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/store"
)

type feedStore interface {
	Agent(ctx context.Context, id string) (store.Agent, error)
	Agents(f store.AgentFilter) []store.Agent
	AgentEvents(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentEvent, error)
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	List(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
	WatchAll() (feed *store.Feed, stop func())
}

type agentFeeds struct {
	*lifecycle
	*handles
	*agentHandles
	store feedStore
}

// SubscribeAgents implements agbox.v1.AgentService. A feed of the store only names what has changed; each item is read when it is sent.
// Its memory is bounded by the number of agents and sandboxes, however slow the client is.
func (s *agentFeeds) SubscribeAgents(req *agboxv1.SubscribeAgentsRequest, stream grpc.ServerStreamingServer[agboxv1.SubscribeAgentsItem]) error {
	if err := validate.SubscribeAgents(req).Err(); err != nil {
		return err
	}
	changes, stop := s.store.WatchAll()
	defer stop()
	f := &agentFeed{
		agentFeeds: s, req: req, stream: stream, after: map[string]uint64{}, dirtyAgents: map[string]bool{}, dirtySandboxes: map[string]bool{},
		sentAgents: map[string][sha256.Size]byte{}, sentSandboxes: map[string][sha256.Size]byte{},
	}
	return s.whileServing(stream.Context(), func(ctx context.Context) error {
		if err := f.begin(ctx); err != nil {
			return err
		}
		for {
			if err := f.sendAll(ctx); err != nil {
				return err
			}
			if len(f.dirtyAgents) == 0 {
				select {
				case <-changes.Changed():
				case <-ctx.Done():
				}
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			f.mark(changes.Take())
		}
	})
}

// agentFeed is one subscription to all agents.
type agentFeed struct {
	*agentFeeds
	req    *agboxv1.SubscribeAgentsRequest
	stream grpc.ServerStreamingServer[agboxv1.SubscribeAgentsItem]
	// after are the sequences of the last events that were read, by agent; agents that are not in it are read from the start.
	after map[string]uint64
	// dirtyAgents and dirtySandboxes may have changed since they were sent.
	dirtyAgents, dirtySandboxes map[string]bool
	// sentAgents and sentSandboxes are digests of what was sent last.
	sentAgents, sentSandboxes map[string][sha256.Size]byte
}

func (f *agentFeed) mark(agents, sandboxes []string) {
	for _, id := range agents {
		f.dirtyAgents[id] = true
	}
	for _, id := range sandboxes {
		f.dirtySandboxes[id] = f.req.GetIncludeSandboxes()
	}
}

// begin sends everything that exists.
func (f *agentFeed) begin(ctx context.Context) error {
	var agents, sandboxes []string
	for _, a := range f.store.Agents(store.AgentFilter{Labels: f.req.GetLabelSelector()}) {
		agents = append(agents, a.ID)
		if !f.req.GetReplay() {
			f.after[a.ID] = a.Status.GetLastSequence()
		}
	}
	for _, c := range f.req.GetCursors() {
		f.after[c.GetAgentId()] = c.GetSequence()
		f.sentAgents[c.GetAgentId()] = [sha256.Size]byte{} // the client knows it
		agents = append(agents, c.GetAgentId())
	}
	if err := f.checkCursors(ctx); err != nil {
		return err
	}
	if f.req.GetIncludeSandboxes() {
		all, err := f.store.List(ctx, store.Filter{Labels: f.req.GetLabelSelector()})
		if err != nil {
			return err
		}
		for _, sb := range all {
			sandboxes = append(sandboxes, sb.ID)
		}
	}
	if err := f.stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for f.mark(agents, sandboxes); len(f.dirtyAgents)+len(f.dirtySandboxes) > 0; {
		if err := f.sendAll(ctx); err != nil {
			return err
		}
	}
	return f.stream.Send(&agboxv1.SubscribeAgentsItem{Item: &agboxv1.SubscribeAgentsItem_Synced{Synced: true}})
}

// checkCursors refuses positions that no event has reached, as after the restore of an older database.
func (f *agentFeed) checkCursors(ctx context.Context) error {
	for _, c := range f.req.GetCursors() {
		a, err := f.store.Agent(ctx, c.GetAgentId())
		if err == nil && c.GetSequence() > a.Status.GetLastSequence() {
			_, err = f.store.AgentEvents(ctx, a.ID, c.GetSequence(), 1)
			return err
		}
	}
	return nil
}

// sendAll sends what is dirty: sandboxes, and one page of each agent. Agents with further pages stay dirty, so that none waits for the
// long history of another.
func (f *agentFeed) sendAll(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(f.dirtySandboxes)) {
		if f.dirtySandboxes[id] {
			if err := f.sendSandbox(ctx, id); err != nil {
				return err
			}
		}
	}
	clear(f.dirtySandboxes)
	for _, id := range slices.Sorted(maps.Keys(f.dirtyAgents)) {
		more, err := f.sendAgent(ctx, id)
		if err != nil {
			return err
		}
		if !more {
			delete(f.dirtyAgents, id)
		}
	}
	return ctx.Err()
}

func (f *agentFeed) sendSandbox(ctx context.Context, id string) error {
	_, known := f.sentSandboxes[id]
	change := &agboxv1.SandboxChange{SandboxId: id}
	sb, err := f.store.Sandbox(ctx, id)
	switch {
	case errdefs.IsNotFound(err):
	case err != nil && !errdefs.IsDataLoss(err):
		return err
	case selects(f.req.GetLabelSelector(), sb.Spec.GetLabels()):
		change.Sandbox = f.handle(sb, false)
	}
	gone := change.GetSandbox() == nil || change.GetSandbox().GetState() == agboxv1.SandboxState_SANDBOX_STATE_DELETED
	if gone && !known || !isNew(f.sentSandboxes, id, change.GetSandbox()) {
		return nil
	}
	if change.GetSandbox() == nil {
		delete(f.sentSandboxes, id)
	}
	return f.stream.Send(&agboxv1.SubscribeAgentsItem{Item: &agboxv1.SubscribeAgentsItem_Sandbox{Sandbox: change}})
}

// sendAgent sends the state of an agent and one page of its events, if there is news; more: there may be another page.
func (f *agentFeed) sendAgent(ctx context.Context, id string) (more bool, err error) {
	a, err := f.store.Agent(ctx, id)
	change := &agboxv1.AgentChange{Cursor: &agboxv1.AgentCursor{AgentId: id}}
	switch {
	case errdefs.IsNotFound(err):
		if _, known := f.sentAgents[id]; !known {
			return false, nil
		}
		delete(f.sentAgents, id)
		delete(f.after, id)
		return false, f.sendChange(change)
	case err != nil && !errdefs.IsDataLoss(err):
		return false, err
	case !selects(f.req.GetLabelSelector(), a.Spec.GetLabels()):
		return false, nil
	}
	if more, err = f.readEvents(ctx, a, change); err != nil {
		return false, err
	}
	if f.after[id] > a.Status.GetLastSequence() { // events were added since a was read; an item is not older than its events
		if newer, err := f.store.Agent(ctx, id); err == nil { // otherwise it was removed meanwhile, and is dirty
			a = newer
		}
	}
	change.Agent = f.agentHandle(a, false)
	change.Cursor.Sequence = f.after[id]
	seen := proto.CloneOf(change.GetAgent())
	seen.Version, seen.LastEventSequence = 0, 0
	news := isNew(f.sentAgents, id, seen) || len(change.GetEvents()) > 0 || change.GetDroppedThrough() > 0
	if !news {
		return more, nil
	}
	return more, f.sendChange(change)
}

func (f *agentFeed) sendChange(c *agboxv1.AgentChange) error {
	return f.stream.Send(&agboxv1.SubscribeAgentsItem{Item: &agboxv1.SubscribeAgentsItem_Agent{Agent: c}})
}

// readEvents reads the next page of the events of an agent into change, and moves its position.
func (f *agentFeed) readEvents(ctx context.Context, a store.Agent, change *agboxv1.AgentChange) (more bool, err error) {
	newest, after := a.Status.GetLastSequence(), f.after[a.ID]
	if len(f.req.GetEventTypes()) == 0 || a.Corrupt {
		f.after[a.ID] = newest
		return false, nil
	}
	if through := a.Status.GetTruncatedThrough(); after < through {
		change.DroppedThrough, after = through, through
	}
	page, err := f.store.AgentEvents(ctx, a.ID, after, batch)
	switch {
	case errdefs.IsOutOfRange(err), errdefs.IsNotFound(err): // dropped or removed since a was read: its next page says so
		change.DroppedThrough = 0
		return true, nil
	case errdefs.IsDataLoss(err) && after < newest: // one event does not decode
		change.DroppedThrough, f.after[a.ID] = after+1, after+1
		return true, nil
	case err != nil:
		return false, fmt.Errorf("events of agent %s: %w", a.ID, err)
	}
	f.after[a.ID] = after
	for _, e := range page {
		f.after[a.ID] = e.GetSequence()
		if slices.Contains(f.req.GetEventTypes(), e.GetEventType()) {
			change.Events = append(change.Events, e)
		}
	}
	return len(page) > 0, nil // how many are one page depends on their size
}

// isNew reports whether m, which may be nil, differs from what was sent last for id, and remembers it.
func isNew[M proto.Message](sent map[string][sha256.Size]byte, id string, m M) bool {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	now := sha256.Sum256(b)
	was, known := sent[id]
	sent[id] = now
	return err != nil || !known || was != now
}

// selects reports whether labels contain all of the selector.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
