package controller

import (
	"context"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/absence"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/disklimit"
	"github.com/agbox/agbox/controller/enginelink"
	"github.com/agbox/agbox/controller/exec"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/controller/quota"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/controller/secret"
	"github.com/agbox/agbox/controller/snapshot"
	"github.com/agbox/agbox/controller/template"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// Store is the part of the store that the controller and its packages use.
type Store interface {
	agent.Store
	agent.DrainStore
	exec.Store
	sandbox.RecordStore
	enginelink.Store
	absence.Confirmations
	template.Store
	disklimit.Store
	OnCommit(func(store.Change))
	List(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
	CountByState() map[agboxv1.SandboxState]int
	InstanceIDs() []string
	Adopts(sandboxID string) bool
	AdoptedObjects(sandboxID string) []string
	DeletedBefore(ctx context.Context, m clockjump.Moment, age time.Duration, limit int) ([]string, error)
	NewestEvents(ctx context.Context, id string, limit int) ([]*agboxv1.SandboxEvent, error)
	PurgeSandbox(ctx context.Context, id string) error
	GatewaySecret(ctx context.Context) ([]byte, error)
	Clock(ctx context.Context) (*storev1.ClockRecord, error)
	SetClock(ctx context.Context, rec *storev1.ClockRecord) error
}

// Engine is the part of the container engine that the controller and its packages use. Every call has a deadline of its own; removing or
// stopping an object that is gone succeeds.
type Engine interface {
	sandbox.ContainerEngine
	enginelink.Engine
	owned.Engine
	snapshot.Engine
	template.Engine
	MeasureContainer(ctx context.Context, id string) (int64, error)
	Usage(containerIDs []string) map[string]dockerx.Usage
	InspectNetwork(ctx context.Context, id string) (dockerx.Network, error)
}

// Execs are the host's files by which execs are started, cancelled and reported. They need no engine.
type Execs interface {
	agent.Files
	exec.Files
	sandbox.HostFiles
	quota.Files
	secret.Files
	InjectedSecret(sandboxID, name, source string) string
	Dirs() ([]execjournal.SandboxDir, error)
	RemoveDir(path string) error
}
