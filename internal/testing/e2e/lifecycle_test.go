//go:build docker

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

const (
	pending  = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	ready    = agboxv1.SandboxState_SANDBOX_STATE_READY
	failed   = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	stopped  = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	finished = agboxv1.ExecState_EXEC_STATE_FINISHED
	ruined   = agboxv1.ExecState_EXEC_STATE_FAILED
	ended    = agboxv1.ExecState_EXEC_STATE_CANCELLED
)

func TestDemo(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("../../../hack/demo.sh")
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestAPlainSandboxGivesExactlyTheContractsEvents(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	d.stopBox(id)
	d.await(id, stopped)
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
	d.await(id, ready)
	if got, want := d.types(id), "ACCEPTED PREPARING READY STOP_REQUESTED STOPPED ACCEPTED READY"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	d.remove(id)
}

func (d *daemon) stopBox(id string) {
	d.Helper()
	if _, err := d.StopSandbox(d.ctx(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		d.Fatal(err)
	}
}

func TestTheSandboxIsWhatTheSpecSays(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "in"), []byte("from the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	id := d.create(&agboxv1.CreateSpec{
		Labels: map[string]string{"team": "x"}, Envs: map[string]string{"GREETING": "good day"},
		Mounts: []*agboxv1.MountSpec{{Source: src, Target: "/mnt/ro"}, {Source: src, Target: "/mnt/rw", Writable: true}},
	})
	d.await(id, ready)
	got := d.sh(id, `echo $GREETING; id -un; pwd; cat /mnt/ro/in; echo $HOST_UID
		touch /mnt/ro/x 2>/dev/null && echo "ro is writable"; echo "$(cat /proc/1/cmdline | tr '\0' ' ')"`)
	want := fmt.Sprintf("good day\nagbox\n/workspace\nfrom the host\n%d\n/run/agbox/bin/agbox-shim init", cmp.Or(os.Getuid(), 1000))
	if !strings.HasPrefix(got, want) {
		t.Errorf("got %q", got)
	}
	format := fmt.Sprintf(`{{index .Config.Labels "%s"}} {{index .Config.Labels "%steam"}} {{.Name}} {{.HostConfig.Privileged}}`,
		naming.SandboxID, naming.UserPrefix)
	if got := strings.TrimSpace(d.docker("inspect", "-f", format, naming.Primary(id))); got != id+" x /"+naming.Primary(id)+" false" {
		t.Errorf("got %q", got)
	}
	d.remove(id)
}

func TestFortySandboxesAtOnce(t *testing.T) {
	d := newDaemon(t, "", "")
	var wg sync.WaitGroup
	ids := make([]string, 40)
	for i := range ids {
		wg.Go(func() { ids[i] = d.create(nil) })
	}
	wg.Wait()
	for _, id := range ids {
		d.await(id, ready)
	}
	for i, id := range ids {
		if got := strings.TrimSpace(d.sh(id, fmt.Sprintf("echo %d", i))); got != fmt.Sprint(i) {
			t.Errorf("sandbox %d says %q", i, got)
		}
	}
	d.restart()
	for _, id := range ids {
		if s := d.state(id); s != ready {
			t.Errorf("after a restart %s is %s", id, s)
		}
	}
	for _, id := range ids {
		wg.Go(func() { d.remove(id) })
	}
	wg.Wait()
}

func TestIdleSandboxIsStoppedAndAnExecHoldsIt(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(&agboxv1.CreateSpec{IdleTtl: durationpb.New(2 * time.Second)})
	d.await(id, ready)
	e := d.exec(id, "sleep", "4")
	if st := d.ended(e.GetExecId()); st.GetState() != finished {
		t.Fatalf("the exec was not left to end: %s", st.GetError())
	}
	d.await(id, stopped)
	if got, want := d.types(id), "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED STOP_REQUESTED STOPPED"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	last := d.events(id)
	if r := last[len(last)-1].GetSandboxPhase().GetReason(); r != "idle_ttl" {
		t.Errorf("reason is %q", r)
	}
}

func TestRequestedStopCancelsExecsAndNeverFails(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	e := d.exec(id, "sleep", "1000")
	d.started(e)
	d.stopBox(id)
	d.stopBox(id) // a second one is no second event
	if _, err := d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}}); !isCode(err, codes.FailedPrecondition) {
		t.Errorf("an exec during a stop: %v", err)
	}
	d.await(id, stopped)
	if st := d.ended(e.GetExecId()); st.GetState() != ended {
		t.Errorf("the exec is %s", st.GetState())
	}
	if got, want := d.types(id), "ACCEPTED PREPARING READY EXEC_STARTED STOP_REQUESTED EXEC_CANCELLED STOPPED"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// started waits until the command of an exec runs, which its journal says.
func (d *daemon) started(e *agboxv1.CreateExecResponse) {
	d.Helper()
	journal := strings.TrimSuffix(e.GetStdoutLogPath(), ".stdout.log") + ".journal"
	d.eventually("exec has started", func() error { _, err := os.Stat(journal); return err })
}

func TestAStoppedSandboxStartedFromOutsideIsStoppedAgain(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	d.stopBox(id)
	d.await(id, stopped)
	d.docker("start", naming.Primary(id))
	d.eventually("it is stopped again", func() error {
		if got := strings.TrimSpace(d.docker("inspect", "-f", "{{.State.Running}}", naming.Primary(id))); got != "false" {
			return fmt.Errorf("running: %s", got)
		}
		return nil
	})
	if got, want := d.types(id), "ACCEPTED PREPARING READY STOP_REQUESTED STOPPED"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// removeNetwork removes the network of a running sandbox by hand. It freezes agboxd meanwhile, which would connect the containers again
// before the network can be removed.
func (d *daemon) removeNetwork(id string) {
	d.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		d.Fatal(err)
	}
	defer func() { _ = d.cmd.Process.Signal(syscall.SIGCONT) }()
	for _, container := range strings.Fields(d.docker("ps", "-q", "--filter", "network="+naming.Network(id))) {
		d.docker("network", "disconnect", "-f", naming.Network(id), container)
	}
	if d.docker("network", "rm", naming.Network(id)) == "" {
		d.Fatalf("the network of %s can't be removed", id)
	}
}

func TestDeathsFromOutsideFailTheSandboxByName(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	for name, c := range map[string]struct {
		harm func(id string)
		code string
	}{
		"killed":          {func(id string) { d.docker("kill", naming.Primary(id)) }, "CONTAINER_DIED"},
		"removed":         {func(id string) { d.docker("rm", "-f", naming.Primary(id)) }, "CONTAINER_MISSING"},
		"network removed": {d.removeNetwork, "NETWORK_MISSING"},
	} {
		id := d.create(nil)
		d.await(id, ready)
		e := d.exec(id, "sleep", "1000")
		d.started(e)
		c.harm(id)
		d.await(id, failed)
		sb := must(d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id}))(t).GetSandbox()
		if sb.GetErrorCode() != c.code {
			t.Errorf("%s: got %s (%s)", name, sb.GetErrorCode(), sb.GetErrorMessage())
		}
		if st := d.ended(e.GetExecId()); st.GetState() != ruined {
			t.Errorf("%s: the exec is %s", name, st.GetState())
		}
		d.remove(id)
	}
}

func TestAnOpenSubscriptionDoesNotDelayTheStop(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	stream := must(d.SubscribeSandboxEvents(d.ctx(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: 3}))(t)
	over := make(chan error, 1)
	go func() { _, err := stream.Recv(); over <- err }()
	took := d.stop()
	if err := <-over; !isCode(err, codes.Unavailable) {
		t.Errorf("the stream ended with %v", err)
	}
	if took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
	d.start()
	d.remove(id)
}

func TestASecondDaemonAndABadConfigExitWithOneSentence(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	agboxd := func(args ...string) (string, int) {
		cmd := exec.Command(filepath.Join(binaries, "agboxd"), args...)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run", "XDG_DATA_HOME="+d.home+"/data", "XDG_CONFIG_HOME="+d.home+"/config")
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := agboxd(); code != 3 || strings.Count(out, "\n") != 1 || !strings.Contains(out, "another agboxd") {
		t.Errorf("second daemon: code %d, %s", code, out)
	}
	if out, code := agboxd("--config", filepath.Join(d.home, "absent.toml")); code != 2 || strings.Count(out, "\n") != 1 {
		t.Errorf("absent config: code %d, %s", code, out)
	}
	bad := filepath.Join(d.home, "bad.toml")
	if err := os.WriteFile(bad, []byte("[runtime]\nidle_tll = \"3m\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := agboxd("--config", bad); code != 2 || !strings.Contains(out, "idle_tll") {
		t.Errorf("unknown key: code %d, %s", code, out)
	}
}

func TestTheDaemonServesWithoutAnEngineAndConvergesWhenItComes(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "agbox-e2e-sock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	sock := filepath.Join(dir, "d.sock")
	d := newDaemon(t, "unix://"+sock, "")
	d.host = "" // behind the socket, which does not outlive the test, is the engine that is there
	id := d.create(nil)
	ping := must(d.Ping(d.ctx(), &agboxv1.PingRequest{}))(t)
	if ping.GetEngineProblem() == "" || d.state(id) != pending {
		t.Errorf("problem %q, state %s", ping.GetEngineProblem(), d.state(id))
	}
	stop := forward(t, sock, engineSocket())
	d.await(id, ready)
	d.sh(id, "true")
	stop()
	e := d.exec(id, "echo", "no engine needed")
	if st := d.ended(e.GetExecId()); st.GetState() != finished {
		t.Errorf("an exec without an engine: %s", st.GetError())
	}
	forward(t, sock, engineSocket())
	d.remove(id)
}

// forward makes the engine reachable at another socket until stop is called: an engine that comes and goes.
func forward(t testing.TB, from, to string) (stop func()) {
	t.Helper()
	_ = os.Remove(from)
	l, err := net.Listen("unix", from)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { pipe(ctx, c, to) })
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); l.Close(); wg.Wait() }) }
	t.Cleanup(stop)
	return stop
}

func pipe(ctx context.Context, c net.Conn, to string) {
	defer c.Close()
	e, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	defer e.Close()
	defer context.AfterFunc(ctx, func() { c.Close(); e.Close() })()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{c, e}, {e, c}} {
		go func() { _, _ = io.Copy(way[0], way[1]); done <- struct{}{} }()
	}
	<-done
	c.Close()
	e.Close()
	<-done
}
