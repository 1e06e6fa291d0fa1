package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/controller/inspect"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/host/buildfiles"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/internal/testing/conformance/fakehost"
	"github.com/agbox/agbox/store"
)

func TestMain(m *testing.M) {
	fakehost.RunShim()
	testscript.Main(m, map[string]func(){"agbox": func() { os.Exit(withSignals()) }})
}

// TestScript runs every verb against a real server with a real store.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			w, err := newWorld(t, filepath.Join(env.WorkDir, ".daemon"))
			if err != nil {
				return err
			}
			env.Values[worldKey{}] = w
			env.Defer(w.close)
			env.Setenv("AGBOX_HOST", w.socket)
			env.Setenv("NO_COLOR", "1")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise the race detector makes each run last a second
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": daemonCommand, "engine": engineCommand, "waitfile": waitFile, "columns": columns, "exits": exits,
			"interrupts": interrupts, "leftover": leftoverCommand, "template": templateCommand,
		},
	})
}

type worldKey struct{}

// world is one daemon with its data, and an engine and commands that outlive it.
type world struct {
	t      testing.TB
	dir    string
	socket string
	engine *dockertest.Fake
	host   *fakehost.Host
	stop   func(context.Context)
}

// slowPulls is an engine whose pulls of images named "stuck" last until their timeout; other pulls fail at once.
type slowPulls struct{ *dockertest.Fake }

func (e slowPulls) EnsureImage(ctx context.Context, ref string, o dockerx.PullOptions) (dockerx.Image, error) {
	if strings.HasPrefix(ref, "stuck") {
		<-ctx.Done()
		return dockerx.Image{}, ctx.Err()
	}
	return e.Fake.EnsureImage(ctx, ref, o)
}

func newWorld(t testing.TB, dir string) (*world, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	short, err := os.MkdirTemp("", "agbox") // a socket's path has at most 107 characters
	if err != nil {
		return nil, err
	}
	engine := dockertest.NewFake()
	for _, ref := range []string{"agbox-base:dev", "x", "other:1", "registry.example.com:5000/some/long/image:v1"} {
		engine.AddImage(ref, dockerx.Image{})
	}
	engine.AddRemoteImage("remote:1", dockerx.Image{})
	engine.PullDelay = 50 * time.Millisecond
	engine.PullSteps = []dockerx.PullProgress{{Layers: 1, Current: 3 << 20, Total: 12 << 20}, {Layers: 1, Current: 12 << 20, Total: 12 << 20}}
	w := &world{t: t, dir: dir, socket: filepath.Join(short, "s"), engine: engine, host: fakehost.New(engine)}
	return w, w.start()
}

// doctor returns the checks of a daemon with the defaults of no configuration.
func doctor(ctl *controller.Controller) func() []*agboxv1.DoctorCheck {
	return func() []*agboxv1.DoctorCheck {
		engine := &agboxv1.DoctorCheck{Name: "engine", Status: inspect.DoctorOK}
		if p := ctl.EngineProblem(); p != "" {
			engine.Status, engine.Text = inspect.DoctorProblem, p
		}
		_, info := ctl.EngineRun()
		return append([]*agboxv1.DoctorCheck{engine}, inspect.Limits(info, inspect.Defaults{NetworkMode: "internet", Profile: "hardened", MemoryLimit: 1})...)
	}
}

// start runs a daemon on the existing data.
func (w *world) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	st, err := store.Open(ctx, store.Options{Path: filepath.Join(w.dir, "ids.db"), InitialMmapSize: 64 << 20})
	if err != nil {
		cancel()
		return err
	}
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		cancel()
		return errors.Join(err, st.Close())
	}
	if _, err := st.NewEpoch(ctx); err != nil {
		cancel()
		return errors.Join(err, l.Close(), st.Close())
	}
	execs := execjournal.New(filepath.Join(w.dir, "logs"), filepath.Join(w.dir, "s"))
	channels, files := w.host.Channels(execs, st.LiveIDs())
	var writers server.Writers
	ctl := controller.New(controller.Config{
		Store: st, Engine: slowPulls{w.engine}, Execs: files, Builds: buildfiles.New(filepath.Join(w.dir, "builds")), HasWriter: writers.Has, WatchExecs: execs.Watch, WatchAgents: execs.WatchAgents, Host: sandbox.Host{ShimDir: "/shim"}, BootID: "boot",
		ResyncInterval: time.Minute, Workers: 4,
		Settings: controller.Settings{
			StopGrace: 10 * time.Second, CancelGrace: 10 * time.Second, HookTimeout: time.Minute, HealthTimeout: time.Minute,
			PidsLimit: 4096,
		},
		Logger: slog.New(slog.DiscardHandler), Metrics: metrics.New(prometheus.NewRegistry(), metrics.Sets{}),
	})
	backups := &backup.Maker{
		Records: st, DataDir: w.dir, LogRoot: filepath.Join(w.dir, "logs"), LogLimit: func() int64 { return 0 },
		ExecFiles: func(id string) []string { return []string{execjournal.JournalName(id), execjournal.StdoutName(id)} },
	}
	api := server.New(server.Deps{
		Backup: backups.Write, Explain: ctl.Explain, ExplainAgent: ctl.ExplainAgent, CollectGarbage: ctl.CollectGarbage,
		Doctor: doctor(ctl), AttackTargets: ctl.AttackTargets, Stats: ctl.Stats, NetworkActivity: ctl.NetworkActivity, Volumes: ctl.Volumes, RemoveVolume: ctl.RemoveVolume,
		CreateSnapshot: ctl.CreateSnapshot, Snapshots: ctl.Snapshots, RemoveSnapshot: ctl.RemoveSnapshot, Templates: ctl.Templates(),
		ServiceOutput: execs.ServiceLog, Outputs: execs, Channels: channels, Streams: channels, Opened: func(string) {}, Archives: ctl.Archive, Writers: &writers,
		Store: st, Logs: execs.LogPaths, Status: ctl.Status, Engine: ctl.EngineProblem, ConfirmEngine: ctl.ConfirmEngine,
		MainLogs: execs.MainLogPaths, ServiceLog: ctl.ServiceLog, Ports: ctl.Ports, EngineRefuses: ctl.EngineRefuses, FreezeRefusal: ctl.FreezeRefusal, NetworkProblem: ctl.NetworkProblem,
		AgentStatus: ctl.AgentStatus, Drainer: drainer{ctl}, DrainWait: func() time.Duration { return time.Minute },
		Nameless: execs.Nameless, StartWarning: execs.StartWarning, SecretProblems: ctl.SecretProblems, DiskWarnings: ctl.DiskWarnings, Rules: func() server.Rules { return server.Rules{} }, CallerLimits: func() server.CallerLimits { return server.CallerLimits{} }, DefaultTimeout: func() time.Duration { return 0 },
		Rebuilding: func() string { return "" }, NoRoom: func() string { return "" }, Now: time.Now,
		Observe:  func(string, codes.Code, time.Duration) {},
		Gateways: func() map[string]string { return map[string]string{"e2b": "127.0.0.1:3000"} },
		Version:  "v1.2.3", Home: "/home/daemon", Logger: slog.New(slog.DiscardHandler),
	})
	var wg sync.WaitGroup
	wg.Go(func() { ctl.Run(ctx) })
	wg.Go(func() {
		if err := execs.WatchOutput(ctx); err != nil {
			w.t.Errorf("watch output: %v", err)
		}
	})
	wg.Go(func() {
		if err := api.Serve(l); err != nil {
			w.t.Errorf("serve: %v", err)
		}
	})
	w.stop = func(shutdown context.Context) {
		if err := api.Shutdown(shutdown); err != nil && shutdown.Err() == nil {
			w.t.Errorf("shutdown: %v", err)
		}
		cancel()
		channels.Close()
		wg.Wait()
		if err := st.Close(); err != nil {
			w.t.Errorf("close: %v", err)
		}
		w.stop = nil
	}
	return nil
}

func (w *world) close() {
	if w.stop != nil {
		w.stop(context.Background())
	}
	w.host.Close()
	if err := w.engine.Close(); err != nil {
		w.t.Errorf("close the engine: %v", err)
	}
	_ = os.RemoveAll(filepath.Dir(w.socket))
}

// templateCommand is "template OWNER NAME [COMMAND]": a client of the gateway builds a template. It waits for the end of the build unless the command
// sleeps.
func templateCommand(ts *testscript.TestScript, _ bool, args []string) {
	c, err := client.Dial(ts.Value(worldKey{}).(*world).socket)
	ts.Check(err)
	defer c.Close()
	command := append(args, "echo hello")[2]
	b, err := c.CreateTemplateBuild(context.Background(), &agboxv1.CreateTemplateBuildRequest{GatewayOwner: args[0], Name: args[1]})
	ts.Check(err)
	ts.Check(c.StartTemplateBuild(context.Background(), &agboxv1.StartTemplateBuildRequest{
		GatewayOwner: args[0], BuildId: b.GetBuildId(), FromImage: "x", Steps: []*agboxv1.TemplateStep{{Type: "RUN", Args: []string{command}}},
	}))
	for b.GetEndedAt() == nil && !strings.HasPrefix(command, "sleep") {
		resp, err := c.TemplateBuild(context.Background(), args[0], b.GetBuildId(), 0, 0)
		ts.Check(err)
		b = resp.GetBuild()
		time.Sleep(10 * time.Millisecond)
	}
}

// daemonCommand is "daemon stop", "daemon kill", which interrupts calls, or "daemon start".
func daemonCommand(ts *testscript.TestScript, _ bool, args []string) {
	w := ts.Value(worldKey{}).(*world)
	switch strings.Join(args, " ") {
	case "stop":
		w.stop(context.Background())
	case "kill":
		killed, cancel := context.WithCancel(context.Background())
		cancel()
		w.stop(killed)
	case "start":
		ts.Check(w.start())
	default:
		ts.Fatalf("usage: daemon stop|kill|start")
	}
}

// engineCommand is "engine down", "engine up", "engine hide", after which the engine lists no container, or a change outside of agbox:
// "engine kill KIND" and "engine remove KIND" (of all containers named agbox-KIND-...), "engine prune" (removes all networks), "engine hold" (no commit
// ends), "engine weak" (it enforces no limit of memory).
func engineCommand(ts *testscript.TestScript, _ bool, args []string) {
	engine := ts.Value(worldKey{}).(*world).engine
	if len(args) == 2 {
		for _, c := range engine.Containers() {
			switch {
			case !strings.HasPrefix(c.Name, "agbox-"+args[1]+"-"):
			case args[0] == "kill":
				engine.ExitContainer(c.ID, 137, false)
			case args[0] == "remove":
				engine.RemoveContainerOutside(c.ID)
			}
		}
		return
	}
	switch strings.Join(args, " ") {
	case "prune":
		for _, n := range engine.Networks() {
			engine.RemoveNetworkOutside(n.ID)
		}
	case "weak":
		engine.SetInfo(func(i *dockerx.Info) { i.MemoryLimit = false })
	case "hold":
		engine.CommitDelay = time.Hour
	case "down", "up":
		engine.Down(args[0] == "down")
	case "hide":
		for _, c := range engine.Containers() {
			engine.HideContainer(c.ID, true)
		}
	default:
		ts.Fatalf("usage: engine down|up|hide|prune|hold|weak, engine kill|remove KIND")
	}
}

// waitFile waits until the file exists and, with a second argument, contains it.
func waitFile(ts *testscript.TestScript, _ bool, args []string) {
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && (len(args) < 2 || strings.Contains(string(text), args[1])) {
			return
		}
		time.Sleep(5 * time.Millisecond) // polls: nothing announces a change of the file
	}
	ts.Fatalf("%v did not come", args)
}

// columns checks that no line of stdout has more characters than its argument.
func columns(ts *testscript.TestScript, _ bool, args []string) {
	limit, err := strconv.Atoi(args[0])
	ts.Check(err)
	for line := range strings.SplitSeq(ts.ReadFile("stdout"), "\n") {
		if width := utf8.RuneCountInString(line); width > limit {
			ts.Fatalf("%d columns: %s", width, line)
		}
	}
}

// exits runs a program and checks its exit code: "exits 3 agbox exec ...".
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := err.(interface{ ExitCode() int }); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("run: %v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// interrupts runs a program, sends it a signal once its stdout contains a marker, and checks its exit code: "interrupts INT 130 ready agbox
// exec ...". It stores the output in the files "out" and "err".
func interrupts(ts *testscript.TestScript, _ bool, args []string) {
	sig := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "PIPE": syscall.SIGPIPE, "KILL": syscall.SIGKILL}[args[0]]
	path, err := lookPath(ts.Getenv("PATH"), args[3])
	ts.Check(err)
	cmd := exec.Command(path, args[4:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "AGBOX_HOST=" + ts.Getenv("AGBOX_HOST"), "GORACE=" + ts.Getenv("GORACE"), "NO_COLOR=1", "HOME=" + ts.Getenv("HOME")}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	watchdog := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	text, sent := "", false
	for buf := make([]byte, 4096); ; {
		n, err := out.Read(buf)
		text += string(buf[:n])
		if !sent && strings.Contains(text, args[2]) {
			sent = true
			if sig == syscall.SIGPIPE { // the reader closes the pipe
				ts.Check(out.Close())
				break
			}
			ts.Check(cmd.Process.Signal(sig))
		}
		if err != nil {
			break
		}
	}
	_ = cmd.Wait() // the exit code is checked below
	ts.Check(os.WriteFile(ts.MkAbs("out"), []byte(text), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("err"), stderr.Bytes(), 0o600))
	if code := cmd.ProcessState.ExitCode(); fmt.Sprint(code) != args[1] {
		ts.Fatalf("exit code %d, want %s; stdout %q, stderr %q", code, args[1], text, stderr.String())
	}
}

func lookPath(list, name string) (string, error) {
	for _, dir := range filepath.SplitList(list) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}
