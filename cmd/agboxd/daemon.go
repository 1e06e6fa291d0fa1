package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/exec"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/channel/hub"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/host/disk"
	"github.com/agbox/agbox/internal/host/diskspace"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/hostclock"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/host/lockfile"
	"github.com/agbox/agbox/internal/host/mountpolicy"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/host/sdnotify"
	"github.com/agbox/agbox/internal/host/shimdir"
	"github.com/agbox/agbox/internal/manifest"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/internal/purge"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/internal/sandboxstate"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/internal/server/connlimit"
	"github.com/agbox/agbox/internal/server/httpapi"
	"github.com/agbox/agbox/internal/server/mtls"
	"github.com/agbox/agbox/internal/session"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

type options struct{ configFile, shim string }

// rebuildPatience is the longest time that agboxd does not serve because the engine cannot be listed. After it, agboxd serves the records it
// has and answers UNAVAILABLE for those it cannot know.
const rebuildPatience = 10 * time.Second

// memoryLimit is the Go memory limit, in bytes, near which the garbage collector runs more often. agboxd uses about 30 MiB, and requests at
// most 256 MiB more (internal/server); this leaves 98 MiB for garbage. The promise is 512 MiB for the whole process: the limit is soft and
// excludes the program itself. On a busy machine the process was measured at 30 MiB above it.
const memoryLimit = 384 << 20

// stopTimeout is the time that open calls get to finish when agboxd stops.
const stopTimeout = time.Second

// serve runs the daemon until ctx ends.
func serve(cmd *cobra.Command, o options, stderr io.Writer) error {
	ctx := cmd.Context()
	hangups := make(chan os.Signal, 1) // registered first: an early SIGHUP must neither kill agboxd nor be lost
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	cfg, origin, paths, err := effective(cmd, o.configFile)
	if err != nil {
		return err
	}
	lockFile, err := lockfile.Acquire(paths.Lock)
	if err != nil {
		return err
	}
	defer lockFile.Close()
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	level := &slog.LevelVar{}
	level.Set(cfg.Log.Level.Level())
	d, err := assemble(ctx, cfg, paths, o, newLogger(cfg.Log.Format, level, stderr))
	if err != nil {
		return err
	}
	for _, warning := range origin.Warnings() {
		d.log.Warn("a key of the configuration file is ignored", "file", origin.File, "reason", warning)
	}
	d.level = level
	d.load = func() (config.Config, error) {
		cfg, _, err := config.Load(o.configFile, paths)
		return cfg, err
	}
	return d.run(ctx, hangups)
}

func newLogger(format string, level slog.Leveler, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == config.LogFormatText {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// daemon holds all parts of a running agboxd.
type daemon struct {
	cfg      config.Config
	load     func() (config.Config, error)
	log      *slog.Logger
	level    *slog.LevelVar
	metrics  *metrics.Metrics
	clock    *hostclock.Clock
	store    *store.Store
	engine   *dockerx.Engine
	execs    *execjournal.Dir
	channels *hub.Hub
	writers  server.Writers
	ctl      *controller.Controller
	api      *server.Server
	registry *prometheus.Registry
	socket   net.Listener
	tcp      net.Listener                  // nil: the configuration has none
	tls      *mtls.Listener                // of tcp
	identity atomic.Pointer[mtls.Identity] // of tls
	files    descriptors
	backups  *backup.Maker
	rebuild  *recovery.Rebuilder
	disk     *diskspace.Watcher
	parked   chan struct{}                 // closed at the end of a drain with exit
	drained  chan struct{}                 // has a value after the end of a drain
	current  atomic.Pointer[config.Config] // cfg with the reloadable keys after the last reload
	coverDir string
	site     recovery.Site
	places   mountpolicy.Places
	patience time.Duration // rebuildPatience
}

// assemble opens and connects all parts. It starts no loop and needs no engine.
func assemble(ctx context.Context, cfg config.Config, paths config.Paths, o options, log *slog.Logger) (*daemon, error) {
	if err := checkRoots(cfg, paths); err != nil {
		return nil, err
	}
	if err := purge.CheckInterrupted(paths.DataDir); err != nil {
		return nil, &exitError{exitStore, err}
	}
	// agboxd's own directories: one that is made later would be visible in a mount that contains it.
	for _, dir := range []string{paths.DataDir, cfg.Artifacts.ExecOutputRoot, cfg.Backup.Dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make a directory of agboxd: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(paths.ConfigFile), 0o700); err != nil {
		log.Warn("the directory of the configuration can't be made: mounts that would contain it are refused", "err", err)
	}
	coverDir, err := mountpolicy.MakeCovers(paths.DataDir)
	if err != nil {
		return nil, err
	}
	shim, err := shimdir.Find(o.shim)
	if err != nil {
		return nil, err
	}
	shimDir, err := shimdir.Install(shim, paths.DataDir)
	if err != nil {
		return nil, err
	}
	d := &daemon{cfg: cfg, log: log, registry: prometheus.NewRegistry(), patience: rebuildPatience, files: limitedDescriptors(log)}
	d.current.Store(&cfg)
	d.site, d.coverDir, d.places = siteOf(cfg, paths), coverDir, newPlaces(cfg, paths, o.configFile)
	d.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	d.metrics = metrics.New(d.registry, metricSets())
	d.metrics.Build(version)
	d.metrics.ConfigLoaded(time.Now())
	if d.clock, err = hostclock.Open(); err != nil {
		return nil, err
	}
	d.watchDisks(paths)
	if d.store, err = d.openStore(ctx, paths); err != nil {
		return nil, err
	}
	if err := d.connect(ctx, paths, shimDir); err != nil {
		return nil, errors.Join(err, d.store.Close())
	}
	return d, nil
}

func (d *daemon) openStore(ctx context.Context, paths config.Paths) (*store.Store, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	s, recovered, err := d.site.Open(ctx, store.Options{
		Now: d.clock.Now, Logger: d.log, Observe: d.metrics.Commit, CheckProgram: []string{self, backup.CheckVerb},
		EventHistoryLimit: d.cfg.Runtime.EventHistoryLimit, NoRoom: d.disk.NoRoom, LogFailed: d.metrics.LogFailed,
		ReserveBytes: d.disk.ReserveBytes(), MakeRoom: d.disk.MakeRoom,
	}, d.log)
	if err != nil {
		return nil, &exitError{exitStore, err}
	}
	if recovered.Missing == "" { // otherwise the rebuilder counts them when it records them
		d.metrics.Rehydrated(string(recovery.FromLog), recovered.Sandboxes)
	}
	if _, err := s.NewEpoch(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	instance := filepath.Join(paths.DataDir, "instance")
	if err := disk.Replace(instance, []byte(s.InstanceID()+"\n"), 0o600); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

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
	secrets, err := hostfiles.NewDirWatch() // it lives as long as the process
	if err != nil {
		d.log.Warn("new contents of secrets are found at intervals only", "err", err)
	}
	d.channels = hub.New(hub.Options{
		Dir: d.execs.ExecDir, MainProcess: d.mainProcess, Dropped: m.ChannelDropped, Logger: d.log,
	})
	files := hub.Files{Dir: d.execs, Hub: d.channels, Logger: d.log}
	files.ServeReleased(d.store.LiveIDs())
	r := d.cfg.Runtime
	d.parked, d.drained = make(chan struct{}), make(chan struct{}, 1)
	parked := sync.OnceFunc(func() { close(d.parked) })
	d.ctl = controller.New(controller.Config{
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
		Sessions: session.New(session.Options{
			Dir: filepath.Join(paths.DataDir, "sessions"), Open: d.channels.Open, Limit: func() int64 { return int64(d.current.Load().Agents.SessionLimit) },
		}),
		WatchSecrets:   secrets,
		RefusesSecret:  func(path string) string { return d.rulesNow().Mounts.Refuses(path, mountpolicy.Use{}) },
		BootID:         d.clock.BootID(),
		ResyncInterval: r.ResyncInterval, Workers: r.Workers, Settings: settings(d.cfg), Logger: d.log, Metrics: m,
	})
	d.disk.OnReturn(d.ctl.RoomReturned)
	d.rebuild = &recovery.Rebuilder{
		Store: d.store, Gather: d.gatherer, Engine: d.ctl.EngineProblem, SameEngine: d.ctl.SameEngine, Logger: d.log,
		Recorded: func(source recovery.Source, n int) { m.Rehydrated(string(source), n) }, Skipped: m.RehydrateSkipped,
	}
	if err := d.rebuild.FromLog(ctx); err != nil {
		return err
	}
	d.backups = d.newMaker(paths)
	d.api = server.New(server.Deps{
		Backup: d.backups.Write, Explain: d.ctl.Explain, ExplainAgent: d.ctl.ExplainAgent, CollectGarbage: d.ctl.CollectGarbage,
		Stats: d.ctl.Stats, Volumes: d.ctl.Volumes, RemoveVolume: d.ctl.RemoveVolume,
		ServiceOutput: d.execs.ServiceLog, Outputs: d.execs, Channels: d.channels, Streams: d.channels, Opened: d.metrics.StreamOpened, Archives: d.ctl.Archive, Writers: &d.writers,
		Store: d.store, Logs: d.execs.LogPaths, MainLogs: d.execs.MainLogPaths, ServiceLog: d.ctl.ServiceLog, Nameless: d.execs.Nameless, StartWarning: d.execs.StartWarning, Status: d.ctl.Status, Engine: d.ctl.EngineProblem,
		Drainer: d.ctl, DrainWait: func() time.Duration { return d.current.Load().Drain.Wait }, AgentStatus: d.ctl.AgentStatus, NoRoom: d.disk.NoRoom,
		Rules: d.rulesNow, SecretProblems: d.ctl.SecretProblems,
		Rebuilding: d.rebuild.Sentence, DefaultTimeout: func() time.Duration { return d.current.Load().Runtime.Timeout },
		Ports: d.ctl.Ports, EngineRefuses: d.ctl.EngineRefuses, ConfirmEngine: d.ctl.ConfirmEngine, Version: version, Home: manifest.Home(), Logger: d.log, Now: d.clock.Now,
		Observe: func(method string, code codes.Code, took time.Duration) { m.RPC(method, code.String(), took) },
	})
	metrics.Export(d.registry, metrics.Live{
		OverQuota: d.ctl.OverQuota, Channels: d.channels.Count, UnreadableSecrets: d.ctl.UnreadableSecrets, Vanished: d.ctl.Held, LogWhole: d.store.LogWhole, AgentsInNeed: d.agentsInNeed, Usage: d.usage,
		Sandboxes: byState(sandboxstate.Live(), d.store.CountByState), Agents: byState(agentStates, d.store.CountAgentsByState),
	})
	if err := d.listenTCP(); err != nil {
		return err
	}
	socket, err := listen(paths.Socket, d.cfg.Socket)
	if err != nil {
		return errors.Join(err, closeIf(d.tls))
	}
	d.socket = connlimit.Newest(socket, d.files.grpc)
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

// followOutput wakes the readers of logs until ctx ends.
func (d *daemon) followOutput(ctx context.Context) {
	for ctx.Err() == nil {
		if err := d.execs.WatchOutput(ctx); err != nil {
			d.log.Error("the logs of execs are not watched", "err", err)
			_ = wait.For(ctx, time.Second)
		}
	}
}

// hostID returns the number that the configuration sets for the user of sandboxes or its group, or else the daemon's own, but never root's.
func hostID(configured, own int) int { return cmp.Or(configured, own, 1000) }

// listen replaces the socket file. This daemon holds the lock beside it, so no other daemon serves on it.
// The socket is closed to others than the daemon's user and, if the configuration says so, a group.
func listen(path string, access config.Socket) (net.Listener, error) {
	if err := disk.Remove(path); err != nil {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := protect(path, access); err != nil {
		return nil, errors.Join(fmt.Errorf("protect %s: %w", path, err), l.Close())
	}
	return l, nil
}

// protect sets owner and permissions of the socket. A group that may use it may also pass through its directory, and not list it.
func protect(path string, access config.Socket) error {
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	if access.FileMode() == 0o600 {
		return nil
	}
	group := -1 // as it is
	if access.Group != "" {
		var err error
		if group, err = config.GroupID(access.Group); err != nil {
			return err
		}
	}
	dir := filepath.Dir(path)
	return errors.Join(os.Chown(dir, -1, group), os.Chmod(dir, 0o710), os.Chown(path, -1, group), os.Chmod(path, access.FileMode()))
}

// run serves until ctx ends, a drain with exit is done, or the gRPC server fails. Then it stops calls, loops and HTTP, and closes the store
// and the engine.
func (d *daemon) run(ctx context.Context, hangups <-chan os.Signal) error {
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	var wg sync.WaitGroup
	wg.Go(func() { d.ctl.Run(loops) })
	wg.Go(func() { d.disk.Run(loops) })
	wg.Go(func() { d.followOutput(loops) })
	wg.Go(func() { d.removeRecordFiles(loops) })
	backups := d.schedule() // before metrics are served
	if d.cfg.HTTP.Listen != config.HTTPOff {
		wg.Go(func() {
			httpapi.Serve(loops, d.cfg.HTTP.Listen, httpapi.Handler(d.registry, d.checks), d.files.http, d.log)
		})
	}
	rebuilt := make(chan struct{})
	wg.Go(func() {
		defer close(rebuilt)
		d.finishRebuild(loops)
	})
	d.awaitRebuild(ctx, rebuilt)
	r := &config.Reloader{Load: d.load, Apply: d.apply, Done: d.metrics.ConfigReloaded, Log: d.log, Now: d.cfg}
	wg.Go(func() { r.Run(loops, hangups) })
	if d.cfg.Backup.Interval > 0 {
		wg.Go(func() { backups.Run(loops) })
	}
	served := make(chan error, 2)
	wg.Go(func() { served <- d.api.Serve(d.socket) })
	if d.tcp != nil {
		d.log.Info("agboxd serves TLS", "listen", d.tcp.Addr().String())
		wg.Go(func() { served <- d.api.Serve(d.tcp) })
	}
	d.notifySystemd(sdnotify.Ready)
	d.log.Info("agboxd serves", "version", version, "socket", d.socket.Addr().String(), "instance", d.store.InstanceID())

	var err error
	select {
	case <-ctx.Done():
		d.log.Info("agboxd stops")
		d.beforeExit(loops)
	case <-d.parked:
		d.log.Info("agboxd stops: its agents are parked")
	case err = <-served:
		err = fmt.Errorf("serve: %w", err)
	}
	d.notifySystemd(sdnotify.Stopping)
	d.shutdownAPI()
	stopLoops()
	d.channels.Close()
	wg.Wait()
	return errors.Join(err, d.store.Close(), d.engine.Close())
}

// finishRebuild completes a pending rebuild and makes the controller handle the rebuilt sandboxes.
func (d *daemon) finishRebuild(ctx context.Context) {
	if !d.store.RebuildPending() {
		return
	}
	d.rebuild.Finish(ctx)
	d.ctl.ResyncRebuilt()
}

// awaitRebuild waits for a rebuild, up to d.patience, before agboxd serves. With an engine that answers, a rebuild takes a moment.
func (d *daemon) awaitRebuild(ctx context.Context, done <-chan struct{}) {
	timer := time.NewTimer(d.patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-ctx.Done():
	case <-timer.C:
		d.log.Warn("the engine can't be listed yet; lookups of unknown objects return UNAVAILABLE until the engine can be listed")
	}
}

// removeRecordFiles removes the copies of the records that earlier versions kept in files, once the log is complete.
func (d *daemon) removeRecordFiles(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-d.store.LogReady():
	}
	if err := d.site.RemoveRecordFiles(); err != nil {
		d.log.Warn("files of an earlier version can't be removed; the next start tries again", "err", err)
	}
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

// apply passes the reloadable keys to their users.
func (d *daemon) apply(cfg config.Config) {
	d.level.Set(cfg.Log.Level.Level())
	d.store.SetEventHistoryLimit(cfg.Runtime.EventHistoryLimit)
	d.ctl.SetSettings(settings(cfg))
	d.current.Store(&cfg)
	d.disk.SetLowWater(int64(cfg.Disk.LowWater))
	d.reloadIdentity(cfg.TCP)
}

// rulesNow returns the rules in force.
func (d *daemon) rulesNow() server.Rules {
	cfg := d.current.Load()
	r := rules(*cfg)
	r.Mounts = d.places.Policy(cfg.Mounts.AllowSystem, cfg.Mounts.Allow, d.engineData(), d.log)
	return r
}

// engineData returns the data directory of the engine, or the last one on record; "" before the engine's first answer.
func (d *daemon) engineData() string {
	if _, info := d.ctl.EngineRun(); info.DataRoot != "" {
		return info.DataRoot
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	was, err := d.store.EngineIdentity(ctx)
	if err != nil {
		d.log.Warn("where the engine keeps its data is unknown until it answers: mounts of it are accepted", "err", err)
	}
	return was.GetDataRoot()
}

// rules returns the rules that depend only on the configuration.
func rules(cfg config.Config) server.Rules {
	return server.Rules{
		Profile: cfg.Security.Profile, Entrypoint: cfg.Runtime.Entrypoint, MemoryLimit: int64(cfg.Runtime.MemoryLimit),
		Mounts: mountpolicy.Policy{AllowSystem: cfg.Mounts.AllowSystem, Allow: cfg.Mounts.Allow},
	}
}

func settings(cfg config.Config) controller.Settings {
	r := cfg.Runtime
	return controller.Settings{
		IdleTTL: r.IdleTTL, CleanupTTL: r.CleanupTTL, Timeout: r.Timeout,
		ClockGrace:     r.ClockGrace,
		FreezeDuration: cfg.Pause.FreezeDuration, MaxFrozen: cfg.Pause.MaxFrozen, StoppedGCAfter: cfg.Pause.StoppedGCAfter,
		StopGrace: r.StopGrace, CancelGrace: r.CancelGrace,
		HookTimeout: r.HookTimeout, HealthTimeout: r.HealthTimeout, PidsLimit: int64(r.PidsLimit),
		LogLimit:              int64(cfg.Artifacts.ExecLogMaxBytes),
		SandboxQuota:          int64(cfg.Artifacts.SandboxMaxBytes),
		KillAtLogLimit:        cfg.Artifacts.OnLogLimit == config.OnLogLimitKill,
		EventRetention:        r.EventRetentionTTL,
		FailInterruptedCreate: r.InterruptedCreate == config.InterruptedCreateFail,
		FailOnEngineDeath:     r.EngineDeath == config.EngineDeathFail,
		KeepOrphans:           r.OrphanSweep == config.OrphanSweepDryRun,
	}
}

func (d *daemon) shutdownAPI() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := d.api.Shutdown(ctx); err != nil {
		d.log.Warn("calls were cut off", "err", err)
	}
}

func (d *daemon) notifySystemd(state string) {
	if err := sdnotify.Notify(state); err != nil {
		d.log.Warn("the service manager was not notified", "state", state, "err", err)
	}
}

func (d *daemon) checks() []httpapi.Check {
	store := httpapi.Check{Name: "store"}
	if damaged := d.store.Corrupt(); len(damaged) > 0 {
		store.Warning = fmt.Sprintf("%d damaged records are set aside; see the log", len(damaged))
	}
	checks := []httpapi.Check{
		store, d.diskCheck(), {Name: "records", Problem: d.rebuild.Sentence()}, d.files.check(), watches(d.execs.Unwatched()),
		{Name: "clock", Warning: d.ctl.ClockWarning()},
		{Name: "engine", Problem: d.ctl.EngineProblem(), Warning: d.ctl.EngineWarning()},
		{Name: "sandboxes", Warning: d.ctl.Vanished()},
	}
	if d.tls != nil {
		checks = append(checks, httpapi.Check{Name: "tcp", Warning: d.identity.Load().ExpiryWarning(d.clock.Now())})
	}
	return checks
}

var agentStates = []agboxv1.AgentState{
	agboxv1.AgentState_AGENT_STATE_PENDING, agboxv1.AgentState_AGENT_STATE_STARTING, agboxv1.AgentState_AGENT_STATE_IDLE,
	agboxv1.AgentState_AGENT_STATE_BUSY, agboxv1.AgentState_AGENT_STATE_STOPPED, agboxv1.AgentState_AGENT_STATE_FAILED,
}

// byState returns the numbers of all states by their labels.
func byState[S interface {
	comparable
	protoreflect.Enum
}](states []S, count func() map[S]int) func() map[string]int {
	return func() map[string]int {
		counts, byLabel := count(), map[string]int{}
		for _, s := range states {
			byLabel[strings.ToLower(enum.Word(s))] = counts[s]
		}
		return byLabel
	}
}

// agentsInNeed returns the number of agents that do not restart until a user starts them.
func (d *daemon) agentsInNeed() (n int) {
	for _, a := range d.store.Agents(store.AgentFilter{}) {
		if a.Status.GetNeedsAttention() {
			n++
		}
	}
	return n
}

func metricSets() metrics.Sets {
	sets := metrics.Sets{
		Loops:     []string{controller.LoopSandboxes, controller.LoopExecs, controller.LoopAgents, controller.LoopDrain},
		EngineOps: dockerx.Ops(), Disks: diskNames(), ExecStates: exec.EndStates(),
	}
	for _, phase := range []agboxv1.DrainPhase{
		agboxv1.DrainPhase_DRAIN_PHASE_WAITING, agboxv1.DrainPhase_DRAIN_PHASE_SAVING, agboxv1.DrainPhase_DRAIN_PHASE_DONE,
	} {
		sets.DrainPhases = append(sets.DrainPhases, phase.String())
	}
	for _, kind := range clockjump.Jumps() {
		sets.ClockJumps = append(sets.ClockJumps, string(kind))
	}
	sets.AgentTriggers, sets.ChannelDrops, sets.StreamPaths = agent.Triggers(), hub.DropReasons, server.Paths
	sets.RebuildSources = []string{string(recovery.FromLog), string(recovery.FromLabels), string(recovery.FromInspect)}
	for _, k := range plan.Kinds() {
		sets.Steps = append(sets.Steps, string(k))
	}
	return sets
}
