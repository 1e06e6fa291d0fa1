package agent

import (
	"context"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// Reader is the part of the store that an Observer reads.
type Reader interface {
	InstanceID() string
	Agent(ctx context.Context, id string) (store.Agent, error)
	AgentsOf(sandboxID string) []string
	AgentPosition(ctx context.Context, id string) (*storev1.AgentPosition, error)
	AgentEvents(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentEvent, error)
	ClaimedPrompt(ctx context.Context, id string) (*storev1.AgentPrompt, error)
	Destination(id string) string
	Drain() *storev1.DrainRecord
	Exec(ctx context.Context, execID string) (store.Exec, error)
}

// Store is the part of the store that a Reconciler uses.
type Store interface {
	Reader
	LiveAgentIDs() []string
	RebuildPending() bool
	Transitions(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentTransition, error)
	TransitionAgent(ctx context.Context, id string, t store.Transition) (store.Agent, error)
	ClaimPrompt(ctx context.Context, id string, version uint64, c store.Claim) (store.Agent, *storev1.AgentPrompt, error)
	Ingest(ctx context.Context, id string, incarnation uint64, from, to *storev1.AgentPosition, out []store.AgentOutput) error
	MoveAgent(ctx context.Context, id string, version uint64) error
	AdoptAgent(ctx context.Context, id string, incarnation uint64) error
	RemoveAgent(ctx context.Context, id string) error
	RequestCancel(ctx context.Context, execID string) (bool, error)
	RequestFreeze(ctx context.Context, id string) (bool, error)
	RequestNudge(ctx context.Context, id string) (bool, error)
}

// DrainStore is the part of the store that a Drainer uses beside that of its Reconciler.
type DrainStore interface {
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	BeginDrain(ctx context.Context, o store.DrainOptions) (*storev1.DrainRecord, error)
	SetDrainPhase(ctx context.Context, of *storev1.DrainRecord, phase agboxv1.DrainPhase) (bool, error)
	EndDrain(ctx context.Context) (bool, error)
}

// FileReader is the part of the files of processes that an Observer reads.
type FileReader interface {
	Status(sandboxID, execID, nonce string) (execjournal.Status, error)
	Tail(sandboxID, execID string, stderr bool, limit int) ([]byte, error)
	InboxSize(sandboxID, execID string) (int64, error)
	ReadRest(sandboxID, execID string, src execjournal.Source, from int64) (line execjournal.Line, ok bool, next int64, err error)
	ReadLines(sandboxID, execID string, src execjournal.Source, from int64, maxBytes int) (lines []execjournal.Line, next int64, err error)
}

// Files are the files by which the daemon and the processes of agents communicate: *execjournal.Dir. They need no engine.
type Files interface {
	FileReader
	AppendInbox(sandboxID, execID string, offset int64, data []byte) (size int64, err error)
	CloseInbox(sandboxID, execID string) error
	AddAgentWatch(sandboxID, execID string) error
	DropAgentWatch(sandboxID, execID string)
	Start(sandboxID string, r execjournal.Request) error
	Cancel(sandboxID, execID, nonce string) error
	Close(sandboxID, execID, nonce, reason string) (execjournal.Status, error)
	Forget(sandboxID, execID string) error
}
