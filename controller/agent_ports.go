package controller

import (
	"context"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// AgentStore is what the agents' loop needs of the store.
type AgentStore interface {
	OnAgentCommit(func(agentID string))
	Agent(ctx context.Context, id string) (store.Agent, error)
	LiveAgentIDs() []string
	AgentsOf(sandboxID string) []string
	AgentPosition(ctx context.Context, id string) (*storev1.AgentPosition, error)
	AgentEvents(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentEvent, error)
	ClaimedPrompt(ctx context.Context, id string) (*storev1.AgentPrompt, error)
	TransitionAgent(ctx context.Context, id string, t store.Transition) (store.Agent, error)
	ClaimPrompt(ctx context.Context, id string, version uint64, c store.Claim) (store.Agent, *storev1.AgentPrompt, error)
	Ingest(ctx context.Context, id string, incarnation uint64, from, to *storev1.AgentPosition, out []store.AgentOutput) error
	Destination(id string) string
	MoveAgent(ctx context.Context, id string, version uint64) error
	AdoptAgent(ctx context.Context, id string, incarnation uint64) error
	Leaving(ctx context.Context, sandboxID string) (int, error)
	RemoveAgent(ctx context.Context, id string) error
	RequestCancel(ctx context.Context, execID string) (bool, error)
	RequestFreeze(ctx context.Context, id string) (bool, error)
	RequestNudge(ctx context.Context, id string) (bool, error)
	Transitions(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentTransition, error)
	Drain() *storev1.DrainRecord
	BeginDrain(ctx context.Context, o store.DrainOptions) (*storev1.DrainRecord, error)
	Drains(rec *storev1.DrainRecord) bool
	SetDrainPhase(ctx context.Context, of *storev1.DrainRecord, phase agboxv1.DrainPhase) (bool, error)
	EndDrain(ctx context.Context) (bool, error)
}

// AgentFiles are the files through which agents are spoken to: *execjournal.Dir. It needs no engine.
type AgentFiles interface {
	AppendInbox(sandboxID, execID string, offset int64, data []byte) (size int64, err error)
	CloseInbox(sandboxID, execID string) error
	InboxSize(sandboxID, execID string) (int64, error)
	ReadRest(sandboxID, execID string, src execjournal.Source, from int64) (line execjournal.Line, ok bool, next int64, err error)
	ReadLines(sandboxID, execID string, src execjournal.Source, from int64, maxBytes int) (lines []execjournal.Line, next int64, err error)
	AddAgentWatch(sandboxID, execID string) error
	DropAgentWatch(sandboxID, execID string)
}
