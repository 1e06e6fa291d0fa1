//go:build docker

// Package e2e kills things: the real agboxd, under real sandboxes, on a real engine.
package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

const (
	baseImage = "agbox-base:dev"
	// patience bounds every wait for something that must happen; these machines are slow at times.
	patience = 90 * time.Second
)

// built lets a machine without Go run these tests: hack/vm-test.sh.
var built = flag.String("binaries", "", "the directory with the programs that the tests run; empty: they are built")

// binaries is the directory with agboxd (built with the race detector), agbox, agbox-shim, and what tests run in sandboxes.
var binaries string

func TestMain(m *testing.M) {
	flag.Parse()
	waitTogether()
	os.Exit(testMain(m))
}

// waitTogether runs more tests at a time than there are processors, unless -parallel says otherwise: they wait most of the
// time, for daemons that die and back-offs that pass. A test that allows something few seconds is not parallel.
func waitTogether() {
	const name = "test.parallel"
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == name })
	if !said {
		_ = flag.Set(name, strconv.Itoa(2*runtime.GOMAXPROCS(0))) // it exists
	}
}

func testMain(m *testing.M) int {
	if binaries = *built; binaries != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "agbox-e2e-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	for pkg, args := range map[string][]string{
		"../../../cmd/agboxd":     {"CGO_ENABLED=1", "-race"},
		"../../../cmd/agbox":      {"CGO_ENABLED=0", "-trimpath"},
		"../../../cmd/agbox-shim": {"CGO_ENABLED=0", "-trimpath"},
		"./testdata/dial":         {"CGO_ENABLED=0", "-trimpath"},
		"./testdata/echo":         {"CGO_ENABLED=0", "-trimpath"},
		"./testdata/fetch":        {"CGO_ENABLED=0", "-trimpath"},
		"./testdata/hostile":      {"CGO_ENABLED=0", "-trimpath"},
		"./testdata/hostilepid1":  {"CGO_ENABLED=0", "-trimpath"},
		"./testdata/testagent":    {"CGO_ENABLED=0", "-trimpath"},
		"../scriptmodel":          {"CGO_ENABLED=0", "-trimpath"},
	} {
		cmd := exec.Command("go", "build", args[1], "-ldflags=-s -w", "-o", filepath.Join(dir, filepath.Base(pkg)), pkg)
		cmd.Env = append(os.Environ(), args[0])
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, out)
			return 1
		}
	}
	binaries = dir
	return m.Run()
}

// daemon is one agboxd with directories of its own, which may die and come back.
type daemon struct {
	testing.TB
	home   string
	host   string // DOCKER_HOST of its engine; "" for the one that is there
	conf   string
	engine string   // more of the section docker
	http   string   // http.listen, "off" unless a test says otherwise
	boot   string   // a file with another boot ID that the daemon sees; "" for the true one
	env    []string // more environment
	netns  string   // the path of the network namespace that it runs in; "": that of the test
	within string   // a shell script that the daemon is started by, in a user namespace of its own with all users; "": none
	// unaudited says why the test leaves what the auditor would object to; "": it is audited at its end.
	unaudited string
	// former are instances whose UUID the test has lost; their objects are removed too.
	former []string
	// dying is how much longer than patience it may take, because it dies and starts many times meanwhile.
	dying time.Duration
	// program is another agboxd than that of the other tests, and dials how it is dialled; "" and nil mostly.
	program string
	dials   []grpc.DialOption
	cmd     *exec.Cmd
	done    chan struct{}
	conn    *grpc.ClientConn
	agboxv1.SandboxServiceClient
	log *logFile
}

// logFile keeps the daemon's log for the moment when a test fails.
type logFile struct {
	mu  sync.Mutex
	buf []byte
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	return len(p), nil
}

func (l *logFile) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf[max(0, len(l.buf)-n):])
}

// newDaemon starts an agboxd that is removed, with all that it made, when the test ends.
func newDaemon(t testing.TB, host, conf string) *daemon {
	t.Helper()
	return newDaemonIn(t, must(os.MkdirTemp("", "agbox-e2e-"))(t), host, conf)
}

// newDaemonIn is newDaemon in a directory that the test has prepared.
func newDaemonIn(t testing.TB, home, host, conf string) *daemon {
	t.Helper()
	d := prepared(t, home)
	d.conf = conf
	if host != "" {
		d.host = host
	}
	d.start()
	return d
}

// prepared is a daemon that the test may still change before it starts it.
func prepared(t testing.TB, home string) *daemon {
	t.Helper()
	d := &daemon{TB: t, home: home, host: os.Getenv("DOCKER_HOST"), http: "off", log: &logFile{}}
	t.Cleanup(d.destroy)
	return d
}

// engineSocket is that of the engine that the tests use.
func engineSocket() string {
	return cmp.Or(strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://"), "/var/run/docker.sock")
}

func (d *daemon) writeConfig() {
	d.Helper()
	path := filepath.Join(d.home, "config", "agents-sandbox", "config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		d.Fatal(err)
	}
	text := fmt.Sprintf("[http]\nlisten = %q\n[docker]\nhost = %q\nsubnet_pool = %q\n%s%s", d.http, d.host, subnetPool(d.home), d.engine, d.conf)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		d.Fatal(err)
	}
}

// subnetPool gives daemons that run side by side different pools, so that they rarely compete for a subnet.
func subnetPool(home string) string {
	h := 0
	for _, b := range []byte(filepath.Base(home)) {
		h = (h*31 + int(b)) % 200
	}
	return fmt.Sprintf("10.%d.0.0/16", 20+h)
}

func (d *daemon) start() {
	d.Helper()
	d.launch()
	d.dial()
}

// launch starts the daemon and does not wait for it.
func (d *daemon) launch() {
	d.Helper()
	d.writeConfig()
	cmd := d.command()
	cmd.Stdout, cmd.Stderr = d.log, d.log
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	d.cmd, d.done = cmd, done
}

// command is an agboxd for the daemon's directories.
func (d *daemon) command(args ...string) *exec.Cmd {
	program := d.program
	if program == "" {
		program = filepath.Join(binaries, "agboxd")
		args = append(args, "--user") // this host may have a system service
	}
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if d.boot != "" { // in a mount namespace of its own
		script := `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`
		cmd = exec.Command("sh", append([]string{"-c", script, d.boot}, cmd.Args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Unshareflags: syscall.CLONE_NEWNS}
	}
	if d.netns != "" {
		cmd = exec.Command("nsenter", append([]string{"--net=" + d.netns}, cmd.Args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	if d.within != "" {
		cmd = exec.Command("sh", append([]string{"-c", d.within + `; exec "$0" "$@"`}, cmd.Args...)...)
		all := []syscall.SysProcIDMap{{Size: 1 << 31}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWUSER, UidMappings: all, GidMappings: all, GidMappingsEnableSetgroups: true}
	}
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run", "XDG_DATA_HOME="+d.home+"/data",
		"XDG_CONFIG_HOME="+d.home+"/config", "DOCKER_HOST=")
	cmd.Env = append(cmd.Env, d.env...)
	return cmd
}

func (d *daemon) dial() {
	d.Helper()
	soon := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond},
		MinConnectTimeout: patience, // without it a connection that took longer than the backoff is closed, even one with a call on it
	}
	conn, err := grpc.NewClient("unix://"+d.home+"/run/agbox/agboxd.sock", append(d.dials, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(soon))...)
	if err != nil {
		d.Fatal(err)
	}
	d.conn, d.SandboxServiceClient = conn, agboxv1.NewSandboxServiceClient(agboxv1.Declare(conn))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := d.Ping(ctx, &agboxv1.PingRequest{}); err != nil {
		d.Fatalf("agboxd does not answer: %v\n%s", err, d.log.tail(4000))
	}
}

// kill ends the daemon as a crash would.
func (d *daemon) kill() {
	if d.cmd == nil { // it was never started
		return
	}
	_ = d.cmd.Process.Kill()
	<-d.done
	_ = d.conn.Close()
}

// stop ends the daemon in order and returns how long that took.
func (d *daemon) stop() time.Duration {
	d.Helper()
	start := time.Now()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(patience):
		d.Fatalf("agboxd does not stop\n%s", d.log.tail(4000))
	}
	_ = d.conn.Close()
	return time.Since(start)
}

func (d *daemon) restart() { d.Helper(); d.kill(); d.start() }

func (d *daemon) destroy() {
	d.audit()
	if d.Failed() {
		d.Logf("log of agboxd:\n%s", d.log.tail(8000))
	}
	d.kill()
	for _, id := range append(d.former, d.instance()...) {
		label := "label=" + naming.Instance + "=" + id
		if d.Failed() {
			for _, c := range strings.Fields(d.docker("ps", "-aq", "--filter", label)) {
				d.Logf("container %s%s", d.docker("inspect", "-f", "{{.Name}}: {{json .State}}", c), d.docker("logs", "--tail", "30", c))
			}
		}
		for _, kind := range []struct{ list, remove []string }{
			{[]string{"ps", "-aq"}, []string{"rm", "-fv"}},
			{[]string{"network", "ls", "-q"}, []string{"network", "rm"}},
			{[]string{"volume", "ls", "-q"}, []string{"volume", "rm"}},
		} {
			if ids := strings.Fields(d.docker(append(kind.list, "--filter", label)...)); len(ids) > 0 {
				d.docker(append(kind.remove, ids...)...)
			}
		}
		if images := d.images(id); len(images) > 0 {
			d.docker(append([]string{"rmi", "-f"}, images...)...)
		}
		if images := d.images(id); len(images) > 0 {
			d.Errorf("images are left: %v", images)
		}
	}
	_ = os.RemoveAll(d.home)
}

// instance is the UUID of the daemon's store, once it has one.
func (d *daemon) instance() []string {
	text, _ := os.ReadFile(filepath.Join(d.home, "data/agents-sandbox/instance"))
	return strings.Fields(string(text))
}

// images are the snapshots of an instance and their parts, by ID.
func (d *daemon) images(instance string) []string {
	return strings.Fields(d.docker("image", "ls", "-q", "--no-trunc", "--filter", "label="+naming.SnapshotInstance+"="+instance))
}

// noImages reports snapshots and parts of the daemon's store.
func (d *daemon) noImages() error {
	if images := d.images(strings.Join(d.instance(), "")); len(images) > 0 {
		return fmt.Errorf("there are images: %v", images)
	}
	return nil
}

// docker runs the docker CLI against the daemon's engine.
func (d *daemon) docker(args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if d.host != "" {
		args = append([]string{"-H", d.host}, args...)
	}
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return ""
	}
	return string(out)
}

func (d *daemon) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience+d.dying)
	d.Cleanup(cancel)
	return ctx
}

// must unwraps a result: must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// create records a sandbox and returns its ID.
func (d *daemon) create(spec *agboxv1.CreateSpec) string {
	d.Helper()
	if spec == nil {
		spec = &agboxv1.CreateSpec{}
	}
	if spec.Image == "" {
		spec.Image = baseImage
	}
	resp, err := d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: spec})
	if err != nil {
		d.Fatal(err)
	}
	return resp.GetSandbox().GetSandboxId()
}

func (d *daemon) state(id string) agboxv1.SandboxState {
	d.Helper()
	return must(d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id}))(d).GetSandbox().GetState()
}

// await waits until the sandbox is in a state, across restarts of the daemon by others. From FAILED no way leads to READY
// or STOPPED.
func (d *daemon) await(id string, want agboxv1.SandboxState) {
	d.Helper()
	d.eventually(fmt.Sprintf("%s is %s", id, want), func() error {
		sb, err := d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id})
		if err != nil {
			return err
		}
		got := sb.GetSandbox()
		if got.GetState() == want {
			return nil
		}
		err = fmt.Errorf("is %s (%s %s; %s)", got.GetState(), got.GetErrorCode(), got.GetErrorMessage(), got.GetStatusMessage())
		if got.GetState() == failed && (want == ready || want == stopped) {
			d.Fatalf("%s is not %s: %v", id, want, err)
		}
		return err
	})
}

// eventually looks until the check holds. It bounds a wait, it does not hide a race: what is checked stays true.
func (d *daemon) eventually(what string, check func() error) {
	d.Helper()
	deadline := time.Now().Add(patience + d.dying)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			d.Fatalf("%s: %v\n%s", what, err, d.log.tail(6000))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (d *daemon) exec(id string, command ...string) *agboxv1.CreateExecResponse {
	d.Helper()
	return must(d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, Command: command}))(d)
}

// ended waits for an exec's end.
func (d *daemon) ended(execID string) *agboxv1.ExecStatus {
	d.Helper()
	var st *agboxv1.ExecStatus
	d.eventually("exec "+execID+" ends", func() error {
		resp, err := d.GetExec(d.ctx(), &agboxv1.GetExecRequest{ExecId: execID})
		if err != nil {
			return err
		}
		if st = resp.GetExec(); st.GetState() == agboxv1.ExecState_EXEC_STATE_RUNNING {
			return errors.New("is running")
		}
		return nil
	})
	return st
}

// sh runs a script and returns its output; it must end well.
func (d *daemon) sh(id, script string) string {
	d.Helper()
	e := d.exec(id, "sh", "-c", script)
	if st := d.ended(e.GetExecId()); st.GetState() != agboxv1.ExecState_EXEC_STATE_FINISHED {
		d.Fatalf("%s: %s %s", script, st.GetState(), st.GetError())
	}
	return d.read(e.GetStdoutLogPath())
}

func (d *daemon) read(path string) string {
	d.Helper()
	return string(must(os.ReadFile(path))(d))
}

// events returns the stored history and checks that it has no gaps.
func (d *daemon) events(id string) []*agboxv1.SandboxEvent {
	d.Helper()
	sb := must(d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id}))(d).GetSandbox()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream := must(d.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id}))(d)
	var list []*agboxv1.SandboxEvent
	for uint64(len(list)) < sb.GetLastEventSequence() {
		e, err := stream.Recv()
		if err != nil {
			d.Fatalf("event %d of %d: %v", len(list)+1, sb.GetLastEventSequence(), err)
		}
		if list = append(list, e); e.GetSequence() != uint64(len(list)) {
			d.Fatalf("event %d has sequence %d", len(list), e.GetSequence())
		}
	}
	return list
}

func (d *daemon) types(id string) string {
	d.Helper()
	var names []string
	for _, e := range d.events(id) {
		names = append(names, strings.TrimPrefix(e.GetEventType().String(), "SANDBOX_"))
	}
	return strings.Join(names, " ")
}

// held is everything that Docker and the disk hold of a sandbox.
func (d *daemon) held(id string) string {
	label := "label=" + naming.SandboxID + "=" + id
	held := d.docker("ps", "-aq", "--filter", label) + d.docker("network", "ls", "-q", "--filter", label)
	if _, err := os.Stat(filepath.Join(d.home, "data/agents-sandbox/exec-logs", id)); err == nil {
		held += "logs"
	}
	return held
}

func (d *daemon) remove(id string) {
	d.Helper()
	if _, err := d.DeleteSandbox(d.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
		d.Fatal(err)
	}
	d.await(id, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
	if held := d.held(id); held != "" {
		d.Fatalf("after the delete there is still %s", held)
	}
}

func isCode(err error, code codes.Code) bool { return status.Code(err) == code }
