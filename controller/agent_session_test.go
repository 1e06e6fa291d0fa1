package controller_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/internal/session"
)

// fakeSessions are the sessions of the programs of a world, each a number of turns, in its sandboxes and copied out of them.
type fakeSessions struct {
	s *fakeShim

	mu     sync.Mutex
	boxes  map[[2]string]int // in a sandbox, of an agent
	turns  map[string]int    // that an agent's program has had in its present session
	copies map[string]int
	fails  error // of Save
	wrong  []string
}

func newFakeSessions(s *fakeShim) *fakeSessions {
	return &fakeSessions{s: s, boxes: map[[2]string]int{}, turns: map[string]int{}, copies: map[string]int{}}
}

// begins is the start of a program. One that resumes must find its session with all its turns.
func (f *fakeSessions) begins(sandboxID, agentID string, resumes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := [2]string{sandboxID, agentID}
	if n, ok := f.boxes[at]; resumes && (!ok || n != f.turns[agentID]) {
		f.wrong = append(f.wrong, fmt.Sprintf("%s resumes in %s a session with %d of its %d turns", agentID, sandboxID, n, f.turns[agentID]))
	}
	if !resumes {
		f.boxes[at], f.turns[agentID] = 0, 0
	}
}

// turned is the end of a turn.
func (f *fakeSessions) turned(sandboxID, agentID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boxes[[2]string{sandboxID, agentID}]++
	f.turns[agentID]++
}

// copy calls fn after a while if the container of the sandbox still runs.
func (f *fakeSessions) copy(ctx context.Context, sandboxID string, fn func() error) error {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f.s.mu.Lock()
	runs := false
	for _, b := range f.s.boxes {
		runs = runs || b.sandbox == sandboxID
	}
	f.s.mu.Unlock()
	if !runs {
		return fmt.Errorf("its container does not run: %w", errdefs.ErrUnavailable)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return fn()
}

func (f *fakeSessions) Save(ctx context.Context, r session.Request) (s session.Saved, err error) {
	err = f.copy(ctx, r.SandboxID, func() error {
		n, ok := f.boxes[[2]string{r.SandboxID, r.AgentID}]
		if f.fails != nil || !ok {
			return f.fails
		}
		f.copies[r.AgentID], s = n, session.Saved{Files: 1, Bytes: int64(n)}
		return nil
	})
	return s, err
}

func (f *fakeSessions) Restore(ctx context.Context, r session.Request) error {
	return f.copy(ctx, r.SandboxID, func() error {
		n, ok := f.copies[r.AgentID]
		if !ok {
			return fmt.Errorf("no copy: %w", errdefs.ErrNotFound)
		}
		at := [2]string{r.SandboxID, r.AgentID}
		f.boxes[at] = max(f.boxes[at], n)
		return nil
	})
}

func (f *fakeSessions) Remove(agentID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.copies, agentID)
	return nil
}

// check reports resumes of sessions that were not there, and copies of agents that are gone.
func (f *fakeSessions) check(agentIDs []string) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.copies {
		if !slices.Contains(agentIDs, id) {
			return fmt.Errorf("the session of %s is kept, which is gone", id)
		}
	}
	if len(f.wrong) > 0 {
		return fmt.Errorf("%q", f.wrong)
	}
	return nil
}

func (s *fusedStore) RecordSession(ctx context.Context, id string, n uint64, rec *storev1.AgentSessionRecord) error {
	return s.f.guard(func() error { return s.Store.RecordSession(ctx, id, n, rec) })
}

func (s *fusedStore) RecordSessionRestored(ctx context.Context, id, sandboxID, problem string) error {
	return s.f.guard(func() error { return s.Store.RecordSessionRestored(ctx, id, sandboxID, problem) })
}

// copiesSessions lets the next daemon copy the sessions of programs.
func (w *world) copiesSessions() {
	w.sessions = newFakeSessions(w.shim)
	w.shim.sessions = w.sessions
}

// withSessions is withAgent for an agent that speaks Claude's format and resumes its session.
func withSessions(t *testing.T, test func(t *testing.T, p *player, box, agent string)) {
	t.Helper()
	inBubble(t, func(t *testing.T, p *player) {
		p.copiesSessions()
		if err := p.start(-1); err != nil {
			t.Fatal(err)
		}
		box := p.readyBox(t)
		p.newAgent(t, box, "ada", &agboxv1.AgentSpec{Format: dialect.Claude})
		pass(time.Second)
		p.prompt(t, "ada", "remember this")
		pass(time.Second)
		test(t, p, box, "ada")
		pass(time.Minute)
		if err := p.sessions.check(p.store.LiveAgentIDs()); err != nil {
			t.Error(err)
		}
	})
}

// wantResumed fails unless the newest process of an agent was started in a way, in a sandbox, and is IDLE.
func (p *player) wantResumed(t *testing.T, id, box string, rung agboxv1.AgentRung) {
	t.Helper()
	p.wantAgent(t, id, agentIdle)
	if a := p.agent(t, id); a.SandboxID != box || a.Status.GetRung() != rung {
		line, _ := p.daemon.AgentStatus(id)
		t.Errorf("it is in %s by %s, %q, %v; want %s by %s", a.SandboxID, a.Status.GetRung(), line, a.Status.GetSession(), box, rung)
	}
}

const (
	byNative  = agboxv1.AgentRung_AGENT_RUNG_NATIVE
	byContext = agboxv1.AgentRung_AGENT_RUNG_CONTEXT
)

func TestAMovedAgentResumesItsSavedSession(t *testing.T) {
	withSessions(t, func(t *testing.T, p *player, _, id string) {
		there := p.readyBox(t)
		p.ask(t, p.moveTo(there), id)
		pass(10 * time.Second)
		p.wantResumed(t, id, there, byNative)
	})
}

func TestALostContainerDoesNotLoseTheSession(t *testing.T) {
	withSessions(t, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "work 600000")
		pass(time.Second)
		p.wantAgent(t, id, agentBusy)
		_, err := p.store.RequestDeleteKeepingAgents(context.Background(), box, "delete_requested")
		if err != nil {
			t.Fatal(err)
		}
		there := p.readyBox(t)
		p.ask(t, p.moveTo(there), id)
		pass(2 * time.Minute)
		if a := p.agent(t, id); a.SandboxID != there || a.Status.GetRung() != byNative {
			t.Errorf("it is in %s by %s", a.SandboxID, a.Status.GetRung())
		}
	})
}

// An agent whose session is not saved, or cannot be restored, still moves: its program gets the conversation as a text.
func TestAnAgentWithoutASavedSessionGetsItsConversation(t *testing.T) {
	withSessions(t, func(t *testing.T, p *player, _, id string) {
		p.sessions.fails = fmt.Errorf("too large: %w", errdefs.ErrResourceExhausted)
		p.prompt(t, id, "more")
		pass(time.Second)
		if got := p.agent(t, id).Status.GetSession(); got.GetProblem() != "too large" || got.GetSavedAt() == 0 {
			t.Errorf("%v", got)
		}
		there := p.readyBox(t)
		p.ask(t, p.moveTo(there), id)
		pass(10 * time.Second)
		p.wantResumed(t, id, there, byContext)
	})
	withSessions(t, func(t *testing.T, p *player, _, id string) {
		if err := p.sessions.Remove(id); err != nil {
			t.Fatal(err)
		}
		there := p.readyBox(t)
		p.ask(t, p.moveTo(there), id)
		pass(10 * time.Second)
		p.wantResumed(t, id, there, byContext)
	})
}

// A turn that ends at the moment of a stop is in the saved session: the container waits for the copy.
func TestTheLastTurnBeforeAStopIsSaved(t *testing.T) {
	withSessions(t, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "work 1000")
		for p.agent(t, id).Status.GetState() != agentBusy {
			pass(time.Millisecond)
		}
		for p.agent(t, id).Status.GetState() == agentBusy {
			pass(time.Millisecond)
		}
		if _, err := p.store.RequestDeleteKeepingAgents(context.Background(), box, "delete_requested"); err != nil {
			t.Fatal(err)
		}
		there := p.readyBox(t)
		p.ask(t, p.moveTo(there), id)
		pass(time.Minute)
		p.wantResumed(t, id, there, byNative)
	})
}

func TestADeletedAgentLeavesNoCopy(t *testing.T) {
	withSessions(t, func(t *testing.T, p *player, _, id string) {
		p.prompt(t, id, "more")
		pass(110 * time.Millisecond) // its session is being copied
		p.ask(t, p.store.RequestAgentDelete, id)
		pass(time.Minute)
		if len(p.sessions.copies) != 0 {
			t.Errorf("%v", p.sessions.copies)
		}
	})
}
