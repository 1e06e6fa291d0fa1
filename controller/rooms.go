package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/exec"
	"github.com/agbox/agbox/controller/inspect"
	"github.com/agbox/agbox/controller/network"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/controller/snapshot"
	"github.com/agbox/agbox/controller/template"
	"github.com/agbox/agbox/controller/volume"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/authority"
	"github.com/agbox/agbox/internal/host/buildfiles"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// Settings are those of package plan.
type Settings = sandbox.Settings

// SetSettings replaces the settings: the next pass over each sandbox uses them, and a resync is requested.
func (c *Controller) SetSettings(s Settings) {
	c.settings.Store(&s)
	c.askResync()
}

// inForce returns the settings of the next pass.
func (c *Controller) inForce() Settings { return *c.settings.Load() }

// newSandboxes connects the Reconciler of sandboxes with the other packages.
func (c *Controller) newSandboxes() *sandbox.Reconciler {
	return sandbox.New(sandbox.Options{
		Store: c.cfg.Store, Engine: c.cfg.Engine, Objects: c.objects, Files: c.cfg.Execs, Link: c.link, Absences: c.absences, Clock: c.clock,
		Queue: c.sandboxLoop, Settings: c.inForce, Started: c.started, Turns: c.agents.Observer().Turns,
		EnqueueExecs: func(id string) { c.execs.EnqueueOf(id) }, EnqueueAgents: c.agents.EnqueueOf, Committing: c.snapshots.Committing, NoRoom: c.cfg.NoRoom, RoomNow: c.cfg.RoomNow,
		MakeRoom: c.makeRoom, Secrets: c.secrets, Networks: c.networks, Host: c.cfg.Host, Logger: c.log, Metrics: c.cfg.Metrics,
	})
}

// Status returns in one sentence what a sandbox waits for or its last error; empty if it is as wanted.
func (c *Controller) Status(sandboxID string) string { return c.sandboxes.Status(sandboxID) }

// Ports returns the last observed published ports of a sandbox. The caller must not change the messages.
func (c *Controller) Ports(sandboxID string) []*agboxv1.PublishedPort {
	return c.sandboxes.Ports(sandboxID)
}

// ServiceLog calls sandbox.Reconciler.ServiceLog.
func (c *Controller) ServiceLog(ctx context.Context, sandboxID, service string) (path, problem string, err error) {
	return c.sandboxes.ServiceLog(ctx, sandboxID, service)
}

// Archive calls sandbox.Reconciler.Archive.
func (c *Controller) Archive(ctx context.Context, sandboxID, path string, read func(io.Reader) error) error {
	return c.sandboxes.Archive(ctx, sandboxID, path, read)
}

// OverQuota returns how many sandboxes have used up their quota, as last measured.
func (c *Controller) OverQuota() int { return c.quotas.Full() }

// DiskWarnings calls disklimit.Watcher.Warnings.
func (c *Controller) DiskWarnings(sb store.Sandbox) []string { return c.disks.Warnings(sb) }

// SecretProblems returns one sentence for each secret of a sandbox that is not as its file.
func (c *Controller) SecretProblems(sandboxID string) []string { return c.secrets.Problems(sandboxID) }

// UnreadableSecrets returns how many secrets of live sandboxes have files that can't be read.
func (c *Controller) UnreadableSecrets() int { return c.secrets.Unreadable() }

// EngineRefuses calls sandbox.Reconciler.EngineRefuses.
func (c *Controller) EngineRefuses(spec *agboxv1.CreateSpec, confinement *storev1.Confinement) validate.Errors {
	return c.sandboxes.EngineRefuses(spec, confinement)
}

// FreezeRefusal calls sandbox.Reconciler.FreezeRefusal.
func (c *Controller) FreezeRefusal() string { return c.sandboxes.FreezeRefusal() }

// newExecs connects the Reconciler of execs with the other packages.
func (c *Controller) newExecs() *exec.Reconciler {
	return exec.New(exec.Options{
		Store: c.cfg.Store, Files: c.cfg.Execs, Sandbox: c.reader.Record, TurnLeft: c.agents.Observer().TurnLeft,
		Limits: c.execLimits, IdleTTL: func(sb store.Sandbox) time.Duration { return sandbox.IdleTTL(sb, c.inForce()) }, MakeRoom: c.makeRoom, RefuseNew: c.refuseNew,
		HasWriter: c.hasWriter, BootID: c.cfg.BootID, Now: c.clock.Now,
		Queue: c.execLoop, Sandboxes: c.sandboxLoop, Watch: c.cfg.WatchExecs, Changed: c.journalChanged,
		Logger: c.log, Metrics: c.cfg.Metrics,
	})
}

func (c *Controller) hasWriter(execID string) bool {
	return c.cfg.HasWriter != nil && c.cfg.HasWriter(execID)
}

func (c *Controller) execLimits(sandboxID string) plan.ExecLimits {
	s := c.inForce()
	return plan.ExecLimits{
		LogBytes: c.quotas.LogLimit(sandboxID, s.LogLimit), AgentLogBytes: s.LogLimit, KillAtLogLimit: s.KillAtLogLimit, CancelGrace: s.CancelGrace,
	}
}

// journalChanged enqueues what else waits for an exec: agents for their processes and helper commands, sandboxes for their hooks and for the
// report of their start. An empty execID is any of the sandbox.
func (c *Controller) journalChanged(sandboxID, execID string) {
	switch {
	case execID == "":
		if sb, err := c.cfg.Store.Sandbox(context.Background(), sandboxID); err == nil && sb.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING {
			c.sandboxLoop.Add(sandboxID)
		}
	case execid.IsHelper(execID):
		c.agents.EnqueueOf(sandboxID)
	case execid.Internal(execID): // a hook or the report of a start
		c.sandboxLoop.Add(sandboxID)
	default:
		c.agents.EnqueueExec(execID)
	}
}

// newAgents connects the Reconciler of agents with the other packages.
func (c *Controller) newAgents() *agent.Reconciler {
	return agent.New(agent.Options{
		Store: c.cfg.Store, Files: c.cfg.Execs, Clock: c.clock, Sandbox: func(ctx context.Context, id string) (plan.Record, store.Sandbox, error) {
			return c.reader.Record(ctx, id)
		}, InDoubt: func(id string) bool { return c.absences.Doubts(id) },
		Sessions: c.cfg.Sessions, Queue: c.agentLoop, EnqueueSandbox: c.sandboxLoop.Add,
		Limits: c.execLimits, NoRoom: c.cfg.NoRoom, Watch: c.cfg.WatchAgents, Logger: c.log, Metrics: c.cfg.Metrics,
	})
}

// AgentStatus returns in one sentence what an agent waits for; unverified: no pass has judged it since the daemon started.
func (c *Controller) AgentStatus(agentID string) (line string, unverified bool) {
	return c.agents.Status(agentID)
}

// newExplainer connects the explainer with ports that only read.
func (c *Controller) newExplainer() *inspect.Explainer {
	return inspect.NewExplainer(inspect.Options{
		Sandbox: c.cfg.Store.Sandbox, Agent: c.cfg.Store.Agent,
		Sandboxes: func() *sandbox.Reader { return c.reader.With(c.link.Checker, c.absences.ReadOnly()) }, Agents: c.agents.Observer(),
		Engine: c.link.State, RunOf: c.link.RunOf, Clock: c.clock.Read, SandboxQueue: c.sandboxLoop, AgentQueue: c.agentLoop,
		SandboxStatus: c.Status, AgentStatus: c.AgentStatus, Network: c.networks.Activity,
	})
}

// newCollector connects the garbage collector: it only reads, except for its Remover.
func (c *Controller) newCollector() *inspect.Collector {
	return inspect.NewCollector(inspect.CollectOptions{
		Lister: inspect.Lister{
			Records: c.cfg.Store, Sandboxes: c.reader, Objects: c.objects, Containers: c.cfg.Engine.ListContainers, Dirs: c.cfg.Execs.Dirs,
			Parts: c.snapshots.Parts, Builds: c.templates.Leftovers,
			Life: c.link.Life, CheckMarker: c.link.Checker.CheckMarker, Clock: c.clock.Read,
		},
		Remover: remover{c.cfg.Engine, c.cfg.Execs}, Logger: c.log, Metrics: c.cfg.Metrics,
	})
}

// newSnapshots connects the keeper of snapshots with the other packages.
func (c *Controller) newSnapshots() *snapshot.Keeper {
	return snapshot.New(snapshot.Options{
		Store: c.cfg.Store, Engine: c.cfg.Engine, Primary: c.primary, CheckMarker: c.link.Checker.CheckMarker, Enqueue: c.sandboxLoop.Add,
		FreezeRefusal: c.FreezeRefusal, Logger: c.log, Metrics: c.cfg.Metrics,
	})
}

// CreateSnapshot calls snapshot.Keeper.CreateSnapshot.
func (c *Controller) CreateSnapshot(ctx context.Context, sandboxID, id string) (*agboxv1.Snapshot, error) {
	return c.snapshots.CreateSnapshot(ctx, sandboxID, id)
}

// Snapshots calls snapshot.Keeper.Snapshots.
func (c *Controller) Snapshots(ctx context.Context, sandboxID, owner string) ([]*agboxv1.Snapshot, error) {
	return c.snapshots.Snapshots(ctx, sandboxID, owner)
}

// RemoveSnapshot calls snapshot.Keeper.RemoveSnapshot. What template builds keep in their cache is no use of a snapshot.
func (c *Controller) RemoveSnapshot(ctx context.Context, id string) error {
	err := c.snapshots.RemoveSnapshot(ctx, id)
	if !errdefs.IsFailedPrecondition(err) {
		return err
	}
	all, listErr := c.snapshots.Snapshots(ctx, "", "")
	if listErr != nil {
		return listErr
	}
	for _, s := range all {
		if s.GetSnapshotId() != id {
			continue
		}
		if dropped, dropErr := c.templates.DropCache(ctx, s.GetImage()); dropErr != nil || !dropped {
			return errors.Join(dropErr, err)
		}
		return c.snapshots.RemoveSnapshot(ctx, id)
	}
	return err
}

// newTemplates connects the keeper of templates with the other packages.
func (c *Controller) newTemplates() *template.Keeper {
	files := c.cfg.Builds
	if files == nil {
		files = buildfiles.New("")
	}
	return template.New(template.Options{
		Store: c.cfg.Store, Engine: c.cfg.Engine, Files: files, CheckMarker: c.link.Checker.CheckMarker,
		PidsLimit: func() int64 { return c.inForce().PidsLimit }, NoRoom: c.cfg.NoRoom, UID: c.cfg.HostUID, GID: c.cfg.HostGID, Logger: c.log, Metrics: c.cfg.Metrics,
	})
}

// Templates returns the keeper of templates.
func (c *Controller) Templates() *template.Keeper { return c.templates }

// primary returns the ID of the primary of a sandbox. Errors: ErrNotFound, the engine shows none; ErrUnavailable, it shows several.
func (c *Controller) primary(ctx context.Context, sandboxID string) (string, error) {
	worlds, err := c.objects.Worlds(ctx, sandboxID)
	if err != nil {
		return "", err
	}
	var ids []string
	if w := worlds[sandboxID]; w != nil {
		for _, ct := range w.Containers {
			if ct.Component == naming.ComponentPrimary {
				ids = append(ids, ct.ID)
			}
		}
	}
	switch len(ids) {
	case 0:
		return "", fmt.Errorf("the engine shows no container of sandbox %s: %w", sandboxID, errdefs.ErrNotFound)
	case 1:
		return ids[0], nil
	}
	return "", fmt.Errorf("the engine shows %d primary containers of sandbox %s; try again: %w", len(ids), sandboxID, errdefs.ErrUnavailable)
}

// newNetworks connects the keeper of packet filter rules with the other packages.
func (c *Controller) newNetworks() *network.Keeper {
	o := c.cfg.Network
	o.Others, o.Authority, o.InjectedSecret = c.otherSubnets, c.authority, c.cfg.Execs.InjectedSecret
	o.Changed, o.Logger, o.Denials, o.Newest, o.Report = c.askResync, c.log, c.cfg.Metrics.NetworkDenied, c.cfg.Store.NewestEvents, c.cfg.Store.Report
	o.Sandbox = c.cfg.Store.Sandbox
	o.Live = func() (all []store.Sandbox) {
		for _, id := range c.cfg.Store.LiveIDs() {
			if sb, err := c.cfg.Store.Sandbox(context.Background(), id); err == nil {
				all = append(all, sb)
			}
		}
		return all
	}
	o.Recorded = func() map[string]bool {
		ids := map[string]bool{}
		for _, sb := range o.Live() {
			ids[sb.Desired.GetObjects().GetNetworkId()] = true
		}
		return ids
	}
	return network.New(o)
}

// authority returns the authority that signs for hosts to whose requests of a sandbox headers are added. It is derived, and stored nowhere.
func (c *Controller) authority(sandboxID string) (*authority.Authority, error) {
	secret, err := c.cfg.Store.GatewaySecret(context.Background())
	if err != nil {
		return nil, err
	}
	return authority.Derive(secret, sandboxID)
}

// certificate returns the certificate of a sandbox's authority, as PEM.
func (c *Controller) certificate(sandboxID string) ([]byte, error) {
	a, err := c.authority(sandboxID)
	if err != nil {
		return nil, err
	}
	return a.Certificate(), nil
}

// NetworkProblem returns in one sentence why no network policy can be enforced on this host; empty: they can.
func (c *Controller) NetworkProblem() string { return c.networks.Problem() }

// otherSubnets returns the subnets of other sandboxes, of any daemon on this engine. Errors are the engine's.
func (c *Controller) otherSubnets(ctx context.Context, sandboxID string) (subnets []netip.Prefix, err error) {
	all, err := c.cfg.Engine.ListNetworks(ctx, map[string]string{naming.SandboxID: ""})
	for _, n := range all {
		if n.Labels[naming.SandboxID] != sandboxID && n.Subnet.IsValid() {
			subnets = append(subnets, n.Subnet)
		}
	}
	return subnets, err
}

// AttackTargets returns what a sandbox should not reach, as arguments of the shim's self-test.
func (c *Controller) AttackTargets(ctx context.Context, sandboxID string) ([]string, error) {
	found, err := c.networks.Targets(ctx, sandboxID)
	var texts []string
	for _, t := range found {
		texts = append(texts, t.String())
	}
	return texts, err
}

// NetworkActivity returns what a sandbox reached and was denied in the last hour. Errors: those of store.Sandbox, and of the kernel.
func (c *Controller) NetworkActivity(ctx context.Context, sandboxID string) (*agboxv1.GetNetworkActivityResponse, error) {
	sb, err := c.cfg.Store.Sandbox(ctx, sandboxID)
	if err != nil {
		return nil, err
	}
	list, problem, err := c.networks.Activity(sb)
	return &agboxv1.GetNetworkActivityResponse{Destinations: list, Problem: problem}, err
}

// CheckNetwork checks again whether network policies can be enforced. It waits for the engine for 10 s at most.
func (c *Controller) CheckNetwork(ctx context.Context) { c.networks.Refresh(ctx) }

// newVolumes connects the keeper of volumes with the other packages.
func (c *Controller) newVolumes() *volume.Keeper {
	return volume.New(volume.Options{
		Store: c.cfg.Store, Objects: c.objects, Remove: c.cfg.Engine.RemoveVolume, Users: c.cfg.Engine.ListVolumeUsers,
		CheckMarker: c.link.Checker.CheckMarker, Logger: c.log, Metrics: c.cfg.Metrics,
	})
}

// makeRoom frees disk space if err says that there was none, and returns err.
func (c *Controller) makeRoom(err error) error {
	if c.cfg.MakeRoom != nil && lacksSpace(err) {
		c.cfg.MakeRoom()
	}
	return err
}

func lacksSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// refuseNew has new work refused if err says that there was no disk space for work that was accepted, and returns err. If the disks show room,
// a quota is used up that statfs(2) does not show: then it frees a piece of disk space, whose absence refuses new work.
func (c *Controller) refuseNew(err error) error {
	if !lacksSpace(err) || c.cfg.RoomNow() != "" {
		return err
	}
	return c.makeRoom(err)
}

// remover removes garbage from the engine and from the host.
type remover struct {
	Engine
	Execs
}
