// Package fakedaemon is a daemon in the process of a test, on the fake engine, whose containers run real commands.
package fakedaemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/controller/inspect"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/host/buildfiles"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/internal/testing/conformance"
	"github.com/agbox/agbox/internal/testing/conformance/fakehost"
	"github.com/agbox/agbox/store"
)

// Image is the one that the engine has.
const Image = "agbox-base:dev"

// Daemon is a daemon in this process, on an engine and commands that outlive it.
type Daemon struct {
	t        testing.TB
	settings conformance.Settings
	dir      string
	socket   string
	engine   *dockertest.Fake
	host     *fakehost.Host
	stop     func(context.Context)
}

// Start starts a daemon with its own data, and ends it with t. The TestMain of the package calls fakehost.RunShim first.
func Start(t testing.TB, s conformance.Settings) *Daemon {
	t.Helper()
	short, err := os.MkdirTemp("", "agbox") // a socket's path may have 107 characters at most
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, settings: s, dir: t.TempDir(), socket: filepath.Join(short, "s"), engine: dockertest.NewFake()}
	d.engine.AddImage(Image, dockerx.Image{})
	d.host = fakehost.New(d.engine)
	t.Cleanup(func() {
		d.Stop(t)
		d.host.Close()
		if err := errors.Join(d.engine.Close(), os.RemoveAll(short)); err != nil {
			t.Error(err)
		}
	})
	d.start()
	return d
}

const bootID = "boot"

// start runs a daemon on the data that is there.
func (d *Daemon) start() {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	st, err := store.Open(ctx, store.Options{
		Path: filepath.Join(d.dir, "ids.db"), InitialMmapSize: 64 << 20, EventHistoryLimit: d.settings.EventHistoryLimit, BootID: bootID,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		d.t.Fatal(err)
	}
	resync := time.Minute
	if d.settings.EventRetention > 0 || d.settings.CleanupTTL > 0 {
		resync = time.Second
	}
	execs := execjournal.New(filepath.Join(d.dir, "logs"), filepath.Join(d.dir, "s"))
	execs.Boot = bootID
	channels, files := d.host.Channels(execs, st.LiveIDs())
	var writers server.Writers
	ctl := controller.New(controller.Config{
		Store: st, Engine: d.engine, Execs: files, HasWriter: writers.Has, WatchExecs: execs.Watch, WatchAgents: execs.WatchAgents, BootID: bootID,
		Host:           sandbox.Host{ShimDir: "/shim", HostUID: cmp.Or(os.Getuid(), 1000), HostGID: cmp.Or(os.Getgid(), 1000)},
		Builds:         buildfiles.New(filepath.Join(d.dir, "builds")),
		ResyncInterval: resync, Workers: 8,
		Settings: controller.Settings{
			StopGrace: 2 * time.Second, CancelGrace: 5 * time.Second, HookTimeout: time.Minute, HealthTimeout: time.Minute,
			PidsLimit: 4096, EventRetention: d.settings.EventRetention, CleanupTTL: d.settings.CleanupTTL,
			LogLimit: d.settings.LogLimitBytes, MaxFrozen: d.settings.MaxFrozen,
			FreezeDuration: d.settings.FreezeDuration, StoppedGCAfter: d.settings.StoppedGCAfter,
		},
		Logger: slog.New(slog.DiscardHandler), Metrics: metrics.New(prometheus.NewRegistry(), metrics.Sets{}),
	})
	api := server.New(server.Deps{
		ServiceOutput: execs.ServiceLog, Outputs: execs, Channels: channels, Streams: channels, Opened: func(string) {}, Archives: ctl.Archive, Writers: &writers,
		Store: st, Logs: execs.LogPaths, Status: ctl.Status, Engine: ctl.EngineProblem, ConfirmEngine: ctl.ConfirmEngine,
		Ports: ctl.Ports, EngineRefuses: ctl.EngineRefuses, FreezeRefusal: ctl.FreezeRefusal, NetworkProblem: ctl.NetworkProblem, AgentStatus: ctl.AgentStatus, MainLogs: execs.MainLogPaths, Explain: ctl.Explain,
		Doctor: func() []*agboxv1.DoctorCheck {
			_, info := ctl.EngineRun()
			return inspect.Limits(info, inspect.Defaults{})
		},
		AttackTargets: ctl.AttackTargets, Stats: ctl.Stats, NetworkActivity: ctl.NetworkActivity, Volumes: ctl.Volumes, RemoveVolume: ctl.RemoveVolume,
		CreateSnapshot: ctl.CreateSnapshot, Snapshots: ctl.Snapshots, RemoveSnapshot: ctl.RemoveSnapshot, Templates: ctl.Templates(),
		Nameless: execs.Nameless, StartWarning: execs.StartWarning, SecretProblems: ctl.SecretProblems, DiskWarnings: ctl.DiskWarnings, Rules: func() server.Rules { return server.Rules{} }, CallerLimits: func() server.CallerLimits { return server.CallerLimits{} }, DefaultTimeout: func() time.Duration { return 0 },
		Rebuilding: func() string { return "" }, NoRoom: func() string { return "" }, Now: time.Now,
		Observe:  func(string, codes.Code, time.Duration) {},
		Gateways: func() map[string]string { return nil },
		Version:  "v1", Home: "/home/daemon", Logger: slog.New(slog.DiscardHandler),
	})
	var wg sync.WaitGroup
	wg.Go(func() { ctl.Run(ctx) })
	wg.Go(func() {
		if err := execs.WatchOutput(ctx); err != nil {
			d.t.Errorf("watch output: %v", err)
		}
	})
	wg.Go(func() {
		if err := api.Serve(l); err != nil {
			d.t.Errorf("serve: %v", err)
		}
	})
	d.stop = func(shutdown context.Context) {
		if err := api.Shutdown(shutdown); err != nil && shutdown.Err() == nil {
			d.t.Errorf("shutdown: %v", err)
		}
		cancel()
		channels.Close()
		wg.Wait()
		if err := st.Close(); err != nil {
			d.t.Errorf("close: %v", err)
		}
	}
}

// end ends the daemon, if there is one.
func (d *Daemon) end(ctx context.Context) {
	if d.stop != nil {
		d.stop(ctx)
		d.stop = nil
	}
}

// Socket is the path of its socket.
func (d *Daemon) Socket() string { return d.socket }

// Stop implements conformance.Daemon.
func (d *Daemon) Stop(testing.TB) { d.end(context.Background()) }

// Restart implements conformance.Daemon.
func (d *Daemon) Restart(testing.TB) {
	killed, cancel := context.WithCancel(context.Background())
	cancel() // no call is waited for
	d.end(killed)
	d.start()
}

// Dial implements conformance.Daemon.
func (d *Daemon) Dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+d.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// Break implements conformance.Daemon.
func (d *Daemon) Break(t testing.TB, sandboxID string, what conformance.Damage) {
	t.Helper()
	switch what {
	case conformance.KillPrimary:
		if err := d.host.Kill(t.Context(), naming.Primary(sandboxID)); err != nil {
			t.Fatal(err)
		}
		d.engine.ExitContainer(naming.Primary(sandboxID), 137, false)
	case conformance.StarvePrimary:
		d.engine.ExitContainer(naming.Primary(sandboxID), 137, true)
	case conformance.RemovePrimary:
		d.engine.RemoveContainerOutside(naming.Primary(sandboxID))
	case conformance.RemoveNetwork:
		for _, n := range d.engine.Networks() {
			if n.Labels[naming.SandboxID] == sandboxID {
				d.engine.RemoveNetworkOutside(n.ID)
			}
		}
	}
}
