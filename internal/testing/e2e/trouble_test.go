//go:build docker

package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store/storetest"
)

// freeAddress returns an address without a listener at the time of the call.
func freeAddress(t testing.TB) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}

// page reads one page of the daemon's HTTP side.
func (d *daemon) page(path string) (status int, body string, err error) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + d.http + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// wantPage waits for a page.
func (d *daemon) wantPage(path string, status int, parts ...string) {
	d.Helper()
	d.eventually(path, func() error {
		code, body, err := d.page(path)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if code != status || !strings.Contains(body, part) {
				return fmt.Errorf("%d, without %q: %s", code, part, body)
			}
		}
		return nil
	})
}

func (d *daemon) database() string { return d.home + "/data/agents-sandbox/ids.db" }

// refuses starts a daemon that must end by itself with one sentence.
func (d *daemon) refuses(code int, words string, args ...string) {
	d.Helper()
	cmd := d.command(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() != code || strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), words) {
		d.Errorf("%v: code %d, %s", args, cmd.ProcessState.ExitCode(), out.String())
	}
}

func TestADamagedRecordHarmsNoOtherSandbox(t *testing.T) {
	t.Parallel()
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.http = freeAddress(t)
	d.start()
	d.unaudited = "one of its records is damaged"
	damaged, well := d.create(nil), d.create(nil)
	d.await(damaged, ready)
	d.await(well, ready)
	d.stop()
	storetest.Put(t, d.database(), "sandbox-config", damaged, []byte("\xff\xff no message"))
	d.start()
	d.wantPage("/readyz", http.StatusOK, "[!]store: 1 damaged", "[+]engine ok", "\nready\n")
	d.sh(well, "true")
	later := d.create(nil)
	d.await(later, ready)
	listed := false
	for _, sb := range must(d.ListSandboxes(d.ctx(), &agboxv1.ListSandboxesRequest{}))(t).GetSandboxes() {
		listed = listed || sb.GetSandboxId() == damaged && strings.Contains(sb.GetStatusMessage(), "does not decode")
	}
	if !listed {
		t.Error("the damaged one is not shown as such")
	}
	if _, err := d.DeleteSandbox(d.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: damaged}); !isCode(err, codes.DataLoss) {
		t.Errorf("the delete of the damaged one: %v", err)
	}
	if got := d.running(damaged); got != "true" {
		t.Errorf("its container runs: %s", got)
	}
	d.remove(later)
	d.remove(well)
}

func TestWhatTheDaemonCanNotReadIsOneSentenceAndAnExitCode(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	d.stop()
	d.refuses(2, d.home, "--config", d.home) // a directory
	storetest.Put(t, d.database(), "meta", "schema", binary.BigEndian.AppendUint64(nil, 1000))
	d.refuses(4, "newer")
	storetest.Put(t, d.database(), "meta", "schema", binary.BigEndian.AppendUint64(nil, 1))
	d.start()
	d.sh(id, "true")
	d.remove(id)
}

func TestADamagedDatabaseIsKeptAndItsRecordsAreThere(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	for i, damage := range [][]byte{[]byte("short"), bytes.Repeat([]byte("noise"), 20000)} {
		d.stop()
		if err := os.WriteFile(d.database(), damage, 0o600); err != nil {
			t.Fatal(err)
		}
		d.start()
		d.sh(id, "true")
		if kept := must(filepath.Glob(d.database() + ".damaged-*"))(t); len(kept) != i+1 {
			t.Errorf("kept are %v", kept)
		}
	}
	d.remove(id)
}

func TestATakenHTTPPortDelaysOnlyHTTP(t *testing.T) {
	t.Parallel()
	taken := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.http = taken.Addr().String()
	d.start()
	id := d.create(nil)
	d.await(id, ready)
	if !strings.Contains(d.log.tail(1<<20), "http does not serve") {
		t.Error("the log does not say so")
	}
	taken.Close()
	d.wantPage("/healthz", http.StatusOK, "ok\n")
	d.remove(id)
}

// metricNames is what dashboards and alerts may count on.
var metricNames = []string{
	"agboxd_reconcile_total", "agboxd_reconcile_seconds", "agboxd_steps_total", "agboxd_engine_calls_total",
	"agboxd_engine_call_seconds", "agboxd_store_commits_total", "agboxd_store_commit_seconds", "agboxd_store_writes_total",
	"agboxd_rpcs_total", "agboxd_rpc_seconds", "agboxd_orphans_removed_total", "agboxd_unknown_sandboxes",
	"agboxd_last_resync_timestamp_seconds", "agboxd_engine_up", "agboxd_sandboxes",
	"workqueue_depth", "workqueue_adds_total", "workqueue_queue_duration_seconds", "workqueue_work_duration_seconds",
	"workqueue_retries_total", "go_goroutines", "process_resident_memory_bytes",
}

func TestMetricsAndReadinessShowTheEngine(t *testing.T) {
	t.Parallel()
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	sock := filepath.Join(d.home, "d.sock")
	d.http, d.host = freeAddress(t), "unix://"+sock
	d.start()
	d.wantPage("/healthz", http.StatusOK, "ok\n")
	d.wantPage("/readyz", http.StatusServiceUnavailable, "[+]store ok", "[-]engine: the Docker engine can't be reached", "\nnot ready\n")
	d.wantPage("/metrics", http.StatusOK, "agboxd_engine_up 0\n", `agboxd_sandboxes{state="ready"} 0`)
	forward(t, sock, engineSocket())
	d.host = "" // behind the socket, which does not outlive the test, is the engine that is there
	id := d.create(nil)
	d.await(id, ready)
	d.wantPage("/readyz", http.StatusOK, "[+]store ok", "engine", "\nready\n")
	d.wantPage("/metrics", http.StatusOK, "agboxd_engine_up 1\n", `agboxd_sandboxes{state="ready"} 1`)
	_, body, err := d.page("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range metricNames {
		if !strings.Contains(body, "# TYPE "+name+" ") {
			t.Errorf("no %s", name)
		}
	}
	for line := range strings.Lines(body) {
		if strings.Contains(line, id) && !strings.HasPrefix(line, "agboxd_sandbox_") { // of the usage of each sandbox, the IDs are bounded
			t.Errorf("an ID is a label: %s", line)
		}
	}
	d.remove(id)
}

// engineCalls sums up what the daemon has asked of the engine.
func (d *daemon) engineCalls() int {
	d.Helper()
	_, body, err := d.page("/metrics")
	if err != nil {
		d.Fatal(err)
	}
	sum := 0
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "agboxd_engine_calls_total{") {
			sum += must(strconv.Atoi(strings.Fields(line)[1]))(d)
		}
	}
	return sum
}

func TestARunningExecCostsTheEngineNothing(t *testing.T) {
	t.Parallel()
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.http, d.conf = freeAddress(t), "[runtime]\nresync_interval = \"1h\"\n"
	d.start()
	id := d.create(nil)
	d.await(id, ready)
	d.sh(id, "true")
	before := d.engineCalls()
	const execs = 20
	ids := make([]string, execs)
	for i := range ids {
		ids[i] = d.exec(id, "sleep", "3").GetExecId()
	}
	for _, execID := range ids {
		d.ended(execID)
	}
	// Whether the engine answers is asked every few seconds, however many execs run.
	if calls := d.engineCalls() - before; calls >= execs {
		t.Errorf("%d engine calls for %d execs of 3 s", calls, execs)
	}
	d.remove(id)
}

func TestTheServiceManagerIsNotified(t *testing.T) {
	t.Parallel()
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	sock := filepath.Join(d.home, "notify")
	conn := must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: sock, Net: "unixgram"}))(t)
	defer conn.Close()
	d.env = []string{"NOTIFY_SOCKET=" + sock}
	d.start()
	hear := func() string {
		buf := make([]byte, 4096)
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	if got := hear(); got != "READY=1" {
		t.Errorf("told %q", got)
	}
	d.stop()
	if got := hear(); got != "STOPPING=1" {
		t.Errorf("told %q", got)
	}
}

func TestAnOrderlyStopInTheMiddleOfEverything(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	old, going := d.create(nil), d.create(nil)
	d.await(old, ready)
	d.await(going, ready)
	for i := range 5 {
		fresh := d.create(nil)
		e := d.exec(old, "sh", "-c", "sleep 1; exit 7")
		d.stopBox(going)
		time.Sleep(time.Duration(i) * 60 * time.Millisecond) // the moment is what varies
		if took := d.stop(); took > 15*time.Second || d.cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("took %s, code %d\n%s", took, d.cmd.ProcessState.ExitCode(), d.log.tail(2000))
		}
		d.start()
		if st := d.ended(e.GetExecId()); st.GetExitCode() != 7 {
			t.Errorf("the exec is %s, code %d, %s", st.GetState(), st.GetExitCode(), st.GetError())
		}
		d.await(going, stopped)
		must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: going}))(t)
		d.await(going, ready)
		d.await(fresh, ready)
		d.remove(fresh)
	}
	for _, id := range []string{old, going} {
		if strings.Contains(d.types(id), "SANDBOX_FAILED") {
			t.Errorf("%s", d.types(id))
		}
		d.remove(id)
	}
}
