package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// fakeAgents has one agent, whose handles and events a test lays out.
type fakeAgents struct {
	agboxv1.UnimplementedAgentServiceServer
	mu      sync.Mutex
	now     *agboxv1.AgentHandle // nil: not found
	events  []*agboxv1.AgentEvent
	changed chan struct{} // closed and replaced by each change
	prompts []*agboxv1.PromptAgentRequest
	moved   *agboxv1.MoveAgentRequest
	follow  func() // called at each subscription
	watches []*agboxv1.SubscribeAgentsRequest
	feed    func(*agboxv1.SubscribeAgentsRequest, grpc.ServerStreamingServer[agboxv1.SubscribeAgentsItem]) error
	reads   int // calls of GetAgent
	lose    int // so many answers and streams are lost
}

func serveAgents(t *testing.T) (*fakeAgents, *client.Client) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox") // t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s, server, done := &fakeAgents{changed: make(chan struct{})}, grpc.NewServer(), make(chan struct{})
	agboxv1.RegisterAgentServiceServer(server, s)
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with the test
	}()
	c, err := client.DialWith(socket, client.Options{Patience: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); server.Stop(); <-done; _ = os.RemoveAll(dir) })
	return s, c
}

// note replaces the agent without an event.
func (s *fakeAgents) note(a *agboxv1.AgentHandle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.AgentId, s.now = "agent", a
	close(s.changed)
	s.changed = make(chan struct{})
}

// become replaces the agent, nil for none, and adds a change of state.
func (s *fakeAgents) become(a *agboxv1.AgentHandle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &agboxv1.AgentEvent{Sequence: uint64(len(s.events) + 1), EventType: agboxv1.AgentEventType_AGENT_STATE_CHANGED}
	s.events = append(s.events, e)
	if a != nil {
		a.AgentId, a.LastEventSequence = "agent", e.Sequence
	}
	s.now = a
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *fakeAgents) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lose > 0 {
		s.lose--
		return status.Error(codes.Unavailable, "the connection broke")
	}
	return nil
}

func (s *fakeAgents) GetAgent(context.Context, *agboxv1.GetAgentRequest) (*agboxv1.GetAgentResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.now == nil {
		return nil, status.Error(codes.NotFound, "agent agent was not found")
	}
	return &agboxv1.GetAgentResponse{Agent: s.now}, nil
}

// MoveAgent is done at once, and told by the event of a move alone.
func (s *fakeAgents) MoveAgent(_ context.Context, req *agboxv1.MoveAgentRequest) (*agboxv1.AcceptedResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = req
	e := &agboxv1.AgentEvent{Sequence: uint64(len(s.events) + 1), EventType: agboxv1.AgentEventType_AGENT_MOVED}
	s.events = append(s.events, e)
	now := proto.CloneOf(s.now)
	now.SandboxId, now.MovesTo, now.LastEventSequence = req.GetSandboxId(), "", e.Sequence
	s.now = now
	close(s.changed)
	s.changed = make(chan struct{})
	return &agboxv1.AcceptedResponse{Accepted: true}, nil
}

func (s *fakeAgents) PromptAgent(_ context.Context, req *agboxv1.PromptAgentRequest) (*agboxv1.PromptAgentResponse, error) {
	s.mu.Lock()
	s.prompts = append(s.prompts, req)
	s.mu.Unlock()
	return &agboxv1.PromptAgentResponse{PromptId: req.GetPromptId()}, s.lost()
}

func (s *fakeAgents) SubscribeAgentEvents(req *agboxv1.SubscribeAgentEventsRequest, stream grpc.ServerStreamingServer[agboxv1.AgentEvent]) error {
	if s.follow != nil {
		s.follow()
	}
	for next := req.GetFromSequence(); ; next++ {
		s.mu.Lock()
		changed, gone, all := s.changed, s.now == nil, s.events
		s.mu.Unlock()
		switch {
		case next < uint64(len(all)):
			if err := stream.Send(all[next]); err != nil {
				return err
			}
			if err := s.lost(); err != nil {
				return err
			}
			continue
		case gone:
			return nil
		}
		next--
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (s *fakeAgents) ListAgentTransitions(_ context.Context, req *agboxv1.ListAgentTransitionsRequest) (*agboxv1.ListAgentTransitionsResponse, error) {
	resp := &agboxv1.ListAgentTransitionsResponse{}
	for n := req.GetAfter() + 1; n <= 600 && len(resp.Transitions) < 256; n++ {
		resp.Transitions = append(resp.Transitions, &agboxv1.AgentTransition{Number: n})
	}
	return resp, nil
}

const (
	agentIdle    = agboxv1.AgentState_AGENT_STATE_IDLE
	agentBusy    = agboxv1.AgentState_AGENT_STATE_BUSY
	agentStopped = agboxv1.AgentState_AGENT_STATE_STOPPED
	agentFailed  = agboxv1.AgentState_AGENT_STATE_FAILED
)

func agentHandle(state agboxv1.AgentState, desired string, change ...func(*agboxv1.AgentHandle)) *agboxv1.AgentHandle {
	h := &agboxv1.AgentHandle{State: state, DesiredState: desired, Spec: &agboxv1.AgentSpec{}}
	for _, fn := range change {
		fn(h)
	}
	return h
}

func TestWaitAgentJudges(t *testing.T) {
	never := func(h *agboxv1.AgentHandle) { h.Spec.RestartPolicy = "never" }
	unverified := func(h *agboxv1.AgentHandle) { h.Unverified = true }
	parked := func(h *agboxv1.AgentHandle) { h.Parked = true }
	exhausted := func(h *agboxv1.AgentHandle) { h.NeedsAttention = true }
	moving := func(h *agboxv1.AgentHandle) { h.MovesTo = "other" }
	for name, tc := range map[string]struct {
		at   *agboxv1.AgentHandle
		want client.AgentCondition
		met  string // "yes", "no" or "never"
	}{
		"idle runs":                        {agentHandle(agentIdle, "running"), client.AgentRunning, "yes"},
		"busy runs":                        {agentHandle(agentBusy, "running"), client.AgentRunning, "yes"},
		"not looked at":                    {agentHandle(agentIdle, "running", unverified), client.AgentRunning, "no"},
		"is to stop":                       {agentHandle(agentBusy, "stopped"), client.AgentRunning, "no"},
		"is stopped":                       {agentHandle(agentStopped, "stopped"), client.AgentRunning, "never"},
		"is restarted":                     {agentHandle(agentFailed, "running"), client.AgentRunning, "no"},
		"no policy starts it":              {agentHandle(agentFailed, "running", never), client.AgentRunning, "never"},
		"parked comes back":                {agentHandle(agentStopped, "running", never, parked), client.AgentRunning, "no"},
		"exhausted":                        {agentHandle(agentFailed, "running", exhausted), client.AgentRunning, "never"},
		"never started":                    {agentHandle(agboxv1.AgentState_AGENT_STATE_PENDING, "running"), client.AgentRunning, "no"},
		"not to be started":                {agentHandle(agboxv1.AgentState_AGENT_STATE_PENDING, "stopped"), client.AgentRunning, "never"},
		"idle with a queue":                {agentHandle(agentIdle, "running", func(h *agboxv1.AgentHandle) { h.QueuedPrompts = 1 }), client.AgentIdle, "no"},
		"idle without":                     {agentHandle(agentIdle, "running"), client.AgentIdle, "yes"},
		"stopped as wanted":                {agentHandle(agentStopped, "stopped"), client.AgentStopped, "yes"},
		"ended by itself":                  {agentHandle(agentStopped, "running"), client.AgentStopped, "yes"},
		"failed between two starts":        {agentHandle(agentFailed, "running"), client.AgentStopped, "no"},
		"works and is to stop":             {agentHandle(agentBusy, "stopped"), client.AgentStopped, "no"},
		"is to be deleted and not running": {agentHandle(agentStopped, "deleted"), client.AgentRunning, "never"},
		"idle and to move":                 {agentHandle(agentIdle, "running", moving), client.AgentMoved, "no"},
		"failed and to move":               {agentHandle(agentFailed, "running", never, exhausted, moving), client.AgentMoved, "no"},
		"failed, and started by a move":    {agentHandle(agentFailed, "running", exhausted, moving), client.AgentRunning, "no"},
		"stopped and to move":              {agentHandle(agentStopped, "stopped", moving), client.AgentMoved, "no"},
		"stopped and to move does not run": {agentHandle(agentStopped, "stopped", moving), client.AgentRunning, "never"},
		"moved and not started yet":        {agentHandle(agentStopped, "running", parked), client.AgentMoved, "no"},
		"moved and not looked at":          {agentHandle(agentIdle, "running", unverified), client.AgentMoved, "no"},
		"moved and runs":                   {agentHandle(agentBusy, "running"), client.AgentMoved, "yes"},
		"moved and had ended by itself":    {agentHandle(agentStopped, "running"), client.AgentMoved, "yes"},
		"moved and stopped as wanted":      {agentHandle(agentStopped, "stopped"), client.AgentMoved, "yes"},
		"moved and stopped in a moment":    {agentHandle(agentFailed, "stopped"), client.AgentMoved, "no"},
		"moved and failed there":           {agentHandle(agentFailed, "running", exhausted), client.AgentMoved, "never"},
		"to be deleted moves no more":      {agentHandle(agentIdle, "deleted"), client.AgentMoved, "never"},
		"is to be deleted":                 {agentHandle(agentStopped, "deleted"), client.AgentDeleted, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := serveAgents(t)
			s.become(tc.at)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.met == "no" {
				s.follow = cancel // it waits for a change
			}
			got, err := c.WaitAgent(ctx, "agent", tc.want)
			switch {
			case tc.met == "yes" && err == nil && got.GetState() == tc.at.GetState():
			case tc.met == "no" && errors.Is(err, context.Canceled):
			case tc.met == "never" && client.IsAgentFailed(err):
			default:
				t.Errorf("got %v, %v, want %s", got, err, tc.met)
			}
		})
	}
}

func TestWaitAgentFollowsToTheEnd(t *testing.T) {
	s, c := serveAgents(t)
	s.become(agentHandle(agentBusy, "running"))
	waited := make(chan error, 1)
	go func() {
		_, err := c.WaitAgent(t.Context(), "agent", client.AgentDeleted)
		waited <- err
	}()
	s.become(agentHandle(agentStopped, "deleted"))
	s.become(nil)
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if _, err := c.WaitAgent(t.Context(), "agent", client.AgentRunning); !client.IsNotFound(err) {
		t.Errorf("of one that is gone: %v", err)
	}
}

// TestWaitAgentPollsNothing: a wait reads the agent at its start and after each item of the subscription, and never by itself; it survives
// lost streams and a daemon that comes back with an older history.
func TestWaitAgentPollsNothing(t *testing.T) {
	s, c := serveAgents(t)
	for range 3 {
		s.become(agentHandle(agentBusy, "running"))
	}
	s.lose = 2
	subscribed := make(chan struct{}, 10)
	s.follow = func() { subscribed <- struct{}{} }
	waited := make(chan error, 1)
	go func() {
		_, err := c.WaitAgent(t.Context(), "agent", client.AgentIdle)
		waited <- err
	}()
	for range 3 {
		<-subscribed
	}
	time.Sleep(1500 * time.Millisecond) // time for a poll
	s.mu.Lock()
	if s.reads > 2 {
		t.Errorf("%d reads for the start and one item", s.reads)
	}
	s.events, s.lose = s.events[:1], 1
	s.mu.Unlock()
	s.note(agentHandle(agentBusy, "running", func(h *agboxv1.AgentHandle) { h.LastEventSequence = 1 }))
	<-subscribed // by the cursor of the lost history
	<-subscribed
	s.note(agentHandle(agentIdle, "running", func(h *agboxv1.AgentHandle) { h.LastEventSequence = 1 }))
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

func TestMoveAgentIsWaitedFor(t *testing.T) {
	s, c := serveAgents(t)
	s.become(agentHandle(agentIdle, "running", func(h *agboxv1.AgentHandle) { h.SandboxId, h.MovesTo = "old", "new" }))
	type outcome struct {
		at  *agboxv1.AgentHandle
		err error
	}
	waited := make(chan outcome, 1)
	go func() {
		at, err := c.WaitAgent(t.Context(), "agent", client.AgentMoved)
		waited <- outcome{at, err}
	}()
	if err := c.MoveAgent(t.Context(), "agent", "new"); err != nil || s.moved.GetAgentId() != "agent" || s.moved.GetSandboxId() != "new" {
		t.Fatalf("asked for %v: %v", s.moved, err)
	}
	if got := <-waited; got.err != nil || got.at.GetSandboxId() != "new" {
		t.Errorf("got %v, %v", got.at, got.err)
	}
}

func TestAgentEventsGoOnBehindTheLastOne(t *testing.T) {
	s, c := serveAgents(t)
	for range 5 {
		s.become(agentHandle(agentIdle, "running"))
	}
	s.lose = 2
	var got []uint64
	for e, err := range c.AgentEvents(t.Context(), "agent", client.AgentEventOptions{From: 1, Reconnect: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.GetSequence()); e.GetSequence() == 5 {
			s.become(nil)
		}
	}
	if !slices.Equal(got, []uint64{2, 3, 4, 5, 6}) {
		t.Errorf("got %v", got)
	}
}

func TestPromptAgentIsRepeatedWithOneID(t *testing.T) {
	s, c := serveAgents(t)
	s.lose = 2
	resp, err := c.PromptAgent(t.Context(), &agboxv1.PromptAgentRequest{AgentId: "agent", Text: "hi"})
	if err != nil || resp.GetPromptId() == "" || len(s.prompts) != 3 {
		t.Fatalf("got %v, %v after %d calls", resp, err, len(s.prompts))
	}
	for _, p := range s.prompts {
		if p.GetPromptId() != resp.GetPromptId() {
			t.Errorf("another ID: %v", p)
		}
	}
}

func TestAgentTransitionsAreReadToTheEnd(t *testing.T) {
	_, c := serveAgents(t)
	all, err := c.AgentTransitions(t.Context(), "agent", 10)
	if err != nil || len(all) != 590 || all[0].GetNumber() != 11 || all[589].GetNumber() != 600 {
		t.Errorf("got %d, %v", len(all), err)
	}
}
