package server

import (
	"context"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// AgentStore are the methods of the store that the server needs for agents.
type AgentStore interface {
	CheckCreateAgent(ctx context.Context, id, name string, spec *agboxv1.AgentSpec) error
	CreateAgent(ctx context.Context, id, name string, spec *agboxv1.AgentSpec) (store.Agent, error)
	RequestAgentRun(ctx context.Context, id string) (changed bool, err error)
	RequestAgentStop(ctx context.Context, id string) (changed bool, err error)
	RequestAgentDelete(ctx context.Context, id string) (changed bool, err error)
	RequestMove(ctx context.Context, id, sandboxID string) (changed bool, err error)
	Destination(id string) string
	RequestInterrupt(ctx context.Context, id string) (changed bool, err error)
	QueuedPrompts(ctx context.Context, id string, limit int) ([]*storev1.AgentPrompt, error)
	QueuePrompt(ctx context.Context, id, promptID, text string) (store.Queued, error)
	Agent(ctx context.Context, id string) (store.Agent, error)
	AgentByName(ctx context.Context, name string) (store.Agent, error)
	Agents(f store.AgentFilter) []store.Agent
	AgentEvents(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentEvent, error)
	Transitions(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentTransition, error)
	WatchAgent(id string) (changed <-chan struct{}, stop func())
	Drain() *storev1.DrainRecord
}

// Drainer ends the work of the daemon in good order.
type Drainer interface {
	// Drain starts a drain and returns. Errors: Refusal DRAIN_INVALID_STATE during another drain.
	Drain(ctx context.Context, req *agboxv1.DrainRequest) (*agboxv1.DrainStatus, error)
	// Undrain ends it. Errors: Refusal DRAIN_INVALID_STATE when there is none.
	Undrain(ctx context.Context) error
	// Status must not block.
	Status() *agboxv1.DrainStatus
}
