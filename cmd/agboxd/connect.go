package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/controller/network"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/channel/hub"
	"github.com/agbox/agbox/internal/host/buildfiles"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/host/hostnet"
	"github.com/agbox/agbox/internal/host/mountpolicy"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/host/resolvers"
	"github.com/agbox/agbox/internal/host/unixsocket"
	"github.com/agbox/agbox/internal/manifest"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/internal/server/connlimit"
	"github.com/agbox/agbox/internal/session"
)

// connect makes the parts that need the store, and opens the listeners.
func (d *daemon) connect(ctx context.Context, paths config.Paths, shimDir string) error {
	m := d.metrics
	var err error
	d.engine, err = dockerx.New(dockerx.Options{
		Host: d.cfg.Docker.Host, SubnetPool: d.cfg.Docker.SubnetPool, PullTimeout: d.cfg.Docker.PullTimeout,
		CredentialsDir: d.cfg.Docker.CredentialsDir, Observe: m.EngineCall,
	})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	d.execs = d.site.Execs()
	d.execs.Boot = d.clock.BootID()
	d.execs.Root = d.containerRoot
	secrets, err := hostfiles.NewDirWatch() // it lives as long as the process
	if err != nil {
		d.log.Warn("new contents of secrets are found at intervals only", "err", err)
	}
	d.channels = hub.New(hub.Options{
		Dir: d.execs.ExecDir, MainProcess: d.mainProcess, Dropped: m.ChannelDropped, Logger: d.log,
	})
	files := hub.Files{Dir: d.execs, Hub: d.channels, Logger: d.log}
	files.ServeReleased(d.store.LiveIDs())
	d.ctl = d.newController(paths, files, shimDir, secrets)
	d.disk.OnReturn(d.ctl.RoomReturned)
	d.rebuild = &recovery.Rebuilder{
		Store: d.store, Gather: d.gatherer, Engine: d.ctl.EngineProblem, SameEngine: d.ctl.SameEngine, Logger: d.log,
		Recorded: func(source recovery.Source, n int) { m.Rehydrated(string(source), n) }, Skipped: m.RehydrateSkipped,
	}
	if err := d.rebuild.FromLog(ctx); err != nil {
		return err
	}
	d.ctl.CheckNetwork(ctx) // before the first create is accepted
	d.backups = d.newMaker(paths)
	d.api = d.newServer()
	d.exportMetrics()
	if err := d.listenTCP(); err != nil {
		return err
	}
	if err := d.listenE2B(); err != nil {
		return errors.Join(err, closeIf(d.tls))
	}
	if err := d.listen(paths.Socket); err != nil {
		if d.e2b != nil {
			err = errors.Join(err, d.e2b.Close())
		}
		return errors.Join(err, closeIf(d.tls))
	}
	return nil
}

// newController makes the controller with all that it needs of the other parts.
func (d *daemon) newController(paths config.Paths, files hub.Files, shimDir string, secrets *hostfiles.DirWatch) *controller.Controller {
	r := d.cfg.Runtime
	d.parked, d.drained = make(chan struct{}), make(chan struct{}, 1)
	parked := sync.OnceFunc(func() { close(d.parked) })
	return controller.New(controller.Config{
		Store: d.store, Engine: d.engine, Execs: files, HasWriter: d.writers.Has, WatchExecs: d.execs.Watch, WatchAgents: d.execs.WatchAgents,
		Drained: func(exit bool) {
			select {
			case d.drained <- struct{}{}:
			default: // the present signal is not consumed yet
			}
			if exit {
				parked()
			}
		},
		NoRoom:   d.disk.NoRoom,
		RoomNow:  d.disk.RoomNow,
		MakeRoom: d.disk.MakeRoom,
		Clock:    func() clockjump.Reading { return clockjump.Reading(d.clock.Read()) },
		Host:     sandbox.Host{CheckMounted: hostfiles.CheckMounted, ShimDir: shimDir, CoverDir: d.coverDir, HostUID: hostID(r.HostUID, os.Getuid()), HostGID: hostID(r.HostGID, os.Getgid())},
		Network:  d.network(paths.DataDir),
		Builds:   buildfiles.New(filepath.Join(paths.DataDir, "builds")),
		Sessions: session.New(session.Options{
			Dir: filepath.Join(paths.DataDir, "sessions"), Open: d.channels.Open, Limit: func() int64 { return int64(d.current.Load().Agents.SessionLimit) },
		}),
		WatchSecrets:   secrets,
		RefusesSecret:  func(path string) string { return d.rulesNow().Mounts.Refuses(path, mountpolicy.Use{}) },
		BootID:         d.clock.BootID(),
		ResyncInterval: r.ResyncInterval, Workers: r.Workers, Settings: settings(d.cfg), Logger: d.log, Metrics: d.metrics,
	})
}

// network returns what network policies are enforced with.
func (d *daemon) network(dataDir string) network.Options {
	d.names = d.newNames(dataDir)
	return network.Options{
		Names: d.names, NamesPort: uint16(d.cfg.Runtime.DNSPort),
		Firewall: firewall.New(0), Pool: d.cfg.Docker.SubnetPool, Foreign: d.engine.Foreign, Resolvers: d.resolvers, Host: d.hostFacts,
	}
}

// resolvers returns the DNS servers that the engine asks.
func (d *daemon) resolvers() []netip.Addr {
	var own []netip.Addr
	for _, text := range d.cfg.Docker.Resolvers {
		own = append(own, netip.MustParseAddr(text)) // it is valid
	}
	if len(own) > 0 {
		return own
	}
	return resolvers.Host.Read()
}

// hostFacts returns the addresses that sandboxes should not reach.
func (d *daemon) hostFacts() (network.HostFacts, error) {
	addresses, err := hostnet.Addresses()
	if err != nil {
		return network.HostFacts{}, err
	}
	routers, err := hostnet.Routers()
	return network.HostFacts{Addresses: addresses, Routers: routers, Resolvers: d.resolvers()}, err
}

// newServer makes the gRPC server with all that it needs of the other parts.
func (d *daemon) newServer() *server.Server {
	return server.New(server.Deps{
		Backup: d.backups.Write, Explain: d.ctl.Explain, ExplainAgent: d.ctl.ExplainAgent, Doctor: d.doctor, AttackTargets: d.ctl.AttackTargets, CollectGarbage: d.ctl.CollectGarbage,
		Stats: d.ctl.Stats, NetworkActivity: d.ctl.NetworkActivity, Volumes: d.ctl.Volumes, RemoveVolume: d.ctl.RemoveVolume,
		CreateSnapshot: d.ctl.CreateSnapshot, Snapshots: d.ctl.Snapshots, RemoveSnapshot: d.ctl.RemoveSnapshot, Templates: d.ctl.Templates(),
		ServiceOutput: d.execs.ServiceLog, Outputs: d.execs, Channels: d.channels, Streams: d.channels, Opened: d.metrics.StreamOpened, Archives: d.ctl.Archive, Writers: &d.writers,
		Store: d.store, Logs: d.execs.LogPaths, MainLogs: d.execs.MainLogPaths, ServiceLog: d.ctl.ServiceLog, Nameless: d.execs.Nameless, StartWarning: d.execs.StartWarning, Status: d.ctl.Status, Engine: d.ctl.EngineProblem,
		Drainer: d.ctl, DrainWait: func() time.Duration { return d.current.Load().Drain.Wait }, AgentStatus: d.ctl.AgentStatus, NoRoom: d.disk.NoRoom,
		Rules: d.rulesNow, CallerLimits: func() server.CallerLimits { return callerLimits(*d.current.Load()) }, SecretProblems: d.ctl.SecretProblems, DiskWarnings: d.ctl.DiskWarnings,
		Rebuilding: d.rebuild.Sentence, DefaultTimeout: func() time.Duration { return d.current.Load().Runtime.Timeout },
		Gateways: d.gateways,
		Ports:    d.ctl.Ports, EngineRefuses: d.ctl.EngineRefuses, FreezeRefusal: d.ctl.FreezeRefusal, NetworkProblem: d.ctl.NetworkProblem, ConfirmEngine: d.ctl.ConfirmEngine, Version: version, Home: manifest.Home(), Logger: d.log, Now: d.clock.Now,
		Observe: func(method string, code codes.Code, took time.Duration) { d.metrics.RPC(method, code.String(), took) },
	})
}

// listen opens the unix socket. This daemon holds the lock beside it, so no other daemon serves on it.
func (d *daemon) listen(path string) error {
	group := unixsocket.Keep
	if d.cfg.Socket.Group != "" && d.cfg.Socket.FileMode() != 0o600 {
		var err error
		if group, err = config.GroupID(d.cfg.Socket.Group); err != nil {
			return fmt.Errorf("socket.group: %w", err)
		}
	}
	socket, err := unixsocket.Listen(path, d.cfg.Socket.FileMode(), group)
	if err != nil {
		return err
	}
	d.socket = connlimit.Newest(socket, d.files.GRPC)
	return nil
}

// mainProcess returns the process ID of the main process of a sandbox's container.
func (d *daemon) mainProcess(ctx context.Context, sandboxID string) (int, error) {
	sb, err := d.store.Sandbox(ctx, sandboxID)
	if err != nil {
		return 0, err
	}
	c, err := d.engine.InspectContainer(ctx, cmp.Or(sb.Desired.GetObjects().GetPrimaryId(), naming.Primary(sandboxID)))
	return c.Pid, err
}

// containerRoot returns the host's user who is root in the engine's containers, once the engine has answered.
func (d *daemon) containerRoot() (root execjournal.Owner, known bool) {
	_, info := d.ctl.EngineRun()
	return execjournal.Owner{UID: info.RootUID, GID: info.RootGID}, info.Version != ""
}

func (d *daemon) gatherer() recovery.Gatherer {
	run, info := d.ctl.EngineRun()
	set := rehydrateSettings(d.cfg, info)
	set.Timeout, set.EngineRun = d.current.Load().Runtime.Timeout, run
	return recovery.Gatherer{
		Engine: d.engine, Files: d.execs, Log: d.log, Settings: set,
		Instance: d.store.InstanceID(), Former: d.store.InstanceIDs(),
	}
}

// hostID returns the number that the configuration sets for the user of sandboxes or its group, or else the daemon's own, but never root's.
func hostID(configured, own int) int { return cmp.Or(configured, own, 1000) }
