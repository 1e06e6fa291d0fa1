package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/channel/hub"
	"github.com/agbox/agbox/internal/host/disk"
	"github.com/agbox/agbox/internal/host/diskspace"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/hostclock"
	"github.com/agbox/agbox/internal/host/lockfile"
	"github.com/agbox/agbox/internal/host/mountpolicy"
	"github.com/agbox/agbox/internal/host/sdnotify"
	"github.com/agbox/agbox/internal/host/shimdir"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/internal/purge"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/internal/server/connlimit"
	"github.com/agbox/agbox/internal/server/httpapi"
	"github.com/agbox/agbox/internal/server/mtls"
	"github.com/agbox/agbox/internal/termsafe"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

type options struct{ configFile, shim, e2b string }

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
	if err == nil {
		cfg, err = o.override(cfg)
	}
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
		if err != nil {
			return cfg, err
		}
		return o.override(cfg)
	}
	return d.run(ctx, hangups)
}

// override sets what the command line has in place of the file.
func (o options) override(cfg config.Config) (config.Config, error) {
	if o.e2b == "" {
		return cfg, nil
	}
	cfg.E2B.Listen = o.e2b
	return cfg, coded(exitUsage, cfg.Validate())
}

func newLogger(format string, level slog.Leveler, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == config.LogFormatText {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(jsonLines{w}, opts))
}

// jsonLines escapes characters that a terminal obeys or hides and JSON allows. The other format quotes them.
type jsonLines struct{ to io.Writer }

// Write implements io.Writer for whole lines.
func (j jsonLines) Write(line []byte) (int, error) {
	if _, err := j.to.Write(termsafe.JSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
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
	names    *names // of network policies
	api      *server.Server
	registry *prometheus.Registry
	socket   net.Listener
	tcp      net.Listener                    // nil: the configuration has none
	tls      *mtls.Listener                  // of tcp
	identity atomic.Pointer[mtls.Identity]   // of tls
	e2b      net.Listener                    // of the gateway for E2B's SDKs; nil: there is none
	e2bCert  atomic.Pointer[tls.Certificate] // nil: it serves plain HTTP
	files    connlimit.Shares
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
	d := &daemon{cfg: cfg, log: log, registry: prometheus.NewRegistry(), patience: rebuildPatience, files: connlimit.ShareProcess(log)}
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
		Now: d.clock.Now, BootID: d.clock.BootID(), Logger: d.log, Observe: d.metrics.Commit, CheckProgram: []string{self, backup.CheckVerb},
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

// followOutput wakes the readers of logs until ctx ends.
func (d *daemon) followOutput(ctx context.Context) {
	for ctx.Err() == nil {
		if err := d.execs.WatchOutput(ctx); err != nil {
			d.log.Error("the logs of execs are not watched", "err", err)
			_ = wait.For(ctx, time.Second)
		}
	}
}

// run serves until ctx ends, a drain with exit is done, or the gRPC server fails. Then it stops calls, loops and HTTP, and closes the store
// and the engine.
func (d *daemon) run(ctx context.Context, hangups <-chan os.Signal) error {
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	var wg sync.WaitGroup
	wg.Go(func() { d.ctl.Run(loops) })
	wg.Go(func() { d.names.keep(loops, d.log) })
	wg.Go(func() { d.disk.Run(loops) })
	wg.Go(func() { d.followOutput(loops) })
	wg.Go(func() { d.removeRecordFiles(loops) })
	backups := d.schedule() // before metrics are served
	if d.cfg.HTTP.Listen != config.HTTPOff {
		wg.Go(func() {
			httpapi.Serve(loops, d.cfg.HTTP.Listen, httpapi.Handler(d.registry, d.checks), d.files.HTTP, d.log)
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
	served := make(chan error, 3)
	gateways, stopGateways := context.WithCancel(loops)
	defer stopGateways()
	gatewaysDone := make(chan struct{})
	wg.Go(func() { served <- d.api.Serve(d.socket) })
	if d.tcp != nil {
		d.log.Info("agboxd serves TLS", "listen", d.tcp.Addr().String())
		wg.Go(func() { served <- d.api.Serve(d.tcp) })
	}
	wg.Go(func() {
		defer close(gatewaysDone)
		if d.e2b != nil {
			if err := d.serveE2B(gateways); err != nil {
				served <- err
			}
		}
	})
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
	stopGateways()
	<-gatewaysDone // they are clients of the API
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
