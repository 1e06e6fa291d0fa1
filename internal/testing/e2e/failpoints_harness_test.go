//go:build docker

package e2e

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
	"github.com/agbox/agbox/internal/fault"
	"github.com/agbox/agbox/internal/fault/faultlist"
)

// mortal is a daemon built with failpoints, which dies once at each of those of its own and is started again at once.
type mortal struct {
	*daemon
	faults string   // the directory of its plan
	points []string // where it dies
	tag    string   // in the IDs of its sandboxes: the engine has names for one of each

	mu      sync.Mutex
	kept    bool // started again when it dies
	deaths  int
	revived chan struct{} // closed when the reviving goroutine has ended
}

var scenes = flag.String("scenes", "", "the scenes of TestKilledAtEveryFailpoint to run, a regular expression; empty: all")

// unreached are the operations at which the scenario can't kill the daemon. A test fails when one of them is reached.
var unreached = map[string]string{
	fault.Store + ".CheckCreate":      "a dry run stages nothing",
	fault.Store + ".CheckCreateAgent": "a dry run stages nothing",
}

// allPoints are those of the daemon, as its source has them.
func allPoints(t testing.TB) []string {
	t.Helper()
	commits := must(faultlist.Commits("../../../store"))(t)
	log, _, err := faultlist.Disk("../../../store/internal/txlog", "Log")
	if err != nil {
		t.Fatal(err)
	}
	sessions, _, err := faultlist.Disk("../../session", "Session")
	if err != nil {
		t.Fatal(err)
	}
	rules, _, err := faultlist.Disk("../../host/firewall", "Rules")
	if err != nil {
		t.Fatal(err)
	}
	builds, _, err := faultlist.Disk("../../host/buildfiles", "Builds")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(
		faultlist.Points(fault.Rules, rules), faultlist.Points(fault.Session, sessions), faultlist.Points(fault.Builds, builds),
		faultlist.Points(fault.Engine, dockerx.Ops()), faultlist.Points(fault.Store, commits), faultlist.Points(fault.Log, log),
	)
}

// diskPoints are those of the daemon's operations on the disk, at which TestKilledWhileTheBallastIsReleasedAndMade kills it: they need a
// disk that fills up. TestEveryChangeOfTheBallastIsWithinAFailpoint fails where one is missing.
func diskPoints(t testing.TB) []string {
	t.Helper()
	ops, _, err := faultlist.Disk("../../host/diskspace", "Disk")
	if err != nil {
		t.Fatal(err)
	}
	return faultlist.Points(fault.Disk, ops)
}

// failpoints are those that a scene must pass.
func failpoints(t testing.TB) []string {
	t.Helper()
	return slices.DeleteFunc(allPoints(t), func(point string) bool { return unreached[operation(point)] != "" })
}

// operation is a point without its moment.
func operation(point string) string { return point[:strings.LastIndex(point, ".")] }

// faultyDaemon is the path of an agboxd with failpoints and other faults, with agbox-shim beside it, as in an installation.
func faultyDaemon(t testing.TB) string {
	t.Helper()
	return must(faulty())(t)
}

var faulty = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(binaries, "faults")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "agboxd")
	build := exec.Command("go", "build", "-tags", "faults", "-race", "-ldflags=-s -w", "-o", program, "../../../cmd/agboxd")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build agboxd: %w\n%s", err, out)
	}
	return program, os.Link(filepath.Join(binaries, "agbox-shim"), filepath.Join(dir, "agbox-shim"))
})

// newMortal starts an agboxd with failpoints that dies at those of some operations.
func newMortal(t *testing.T, conf string, ops ...string) *mortal {
	t.Helper()
	return newMortalOn(t, nil, conf, ops...)
}

// newMortalOn is newMortal on an engine of the test's own.
func newMortalOn(t *testing.T, e *dockerd.Engine, conf string, ops ...string) *mortal {
	t.Helper()
	program := faultyDaemon(t)
	m := &mortal{daemon: prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t)), faults: t.TempDir(), points: failpoints(t),
		tag: strings.ToLower(rand.Text()[:6])}
	m.dying = time.Duration(len(m.points)) * 2 * time.Second // also that of others beside it
	m.points = slices.DeleteFunc(m.points, func(p string) bool {
		return !slices.Contains(ops, strings.TrimPrefix(operation(p), fault.Store+"."))
	})
	var plan strings.Builder
	for _, p := range m.points {
		fmt.Fprintln(&plan, p, "kill")
	}
	if err := os.WriteFile(filepath.Join(m.faults, "plan"), []byte(plan.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if e != nil {
		m.host, m.netns = e.Host(), e.Netns()
	}
	m.program, m.env, m.conf = program, []string{fault.EnvDir + "=" + m.faults}, conf
	m.dials = []grpc.DialOption{grpc.WithUnaryInterceptor(persist)}
	t.Cleanup(m.keep(false))
	m.revive()
	m.dial()
	return m
}

// revive starts the daemon, and again whenever it dies, until halted.
func (m *mortal) revive() {
	m.Helper()
	m.keep(true)()
	m.revived = make(chan struct{})
	m.launch()
	go func() {
		defer close(m.revived)
		for {
			<-m.done
			m.mu.Lock()
			again := m.kept
			m.deaths++
			m.mu.Unlock()
			if !again {
				return
			}
			m.mu.Lock()
			m.launch()
			m.mu.Unlock()
		}
	}()
}

func (m *mortal) keep(on bool) func() {
	return func() {
		m.mu.Lock()
		m.kept = on
		m.mu.Unlock()
		for !on && m.revived != nil { // it may be starting
			m.mu.Lock()
			_ = m.cmd.Process.Kill()
			m.mu.Unlock()
			select {
			case <-m.revived:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// again ends the daemon, lets the caller change its files, and starts it.
func (m *mortal) again(change func()) {
	m.Helper()
	m.keep(false)()
	change()
	m.revive()
}

// persist repeats a call whose outcome is unknown, for as long as its context lets it. What the daemon refuses then was
// accepted before.
func persist(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	for try := 0; ; try++ {
		err := call(ctx, method, req, reply, cc, opts...)
		switch code := status.Code(err); {
		case code == codes.Unavailable && ctx.Err() == nil:
			time.Sleep(20 * time.Millisecond) // between two tries: the daemon is dead, and another goroutine starts it
			continue
		case try > 0 && (code == codes.AlreadyExists || code == codes.FailedPrecondition ||
			code == codes.NotFound && (strings.Contains(method, "/Delete") || strings.Contains(method, "/RemoveVolume") || strings.Contains(method, "/RemoveSnapshot"))):
			return nil
		}
		return err
	}
}

// fired are the points at which the daemon was killed.
func (m *mortal) fired() []string { return m.noted("done") }

func (m *mortal) noted(file string) []string {
	data, err := os.ReadFile(filepath.Join(m.faults, file))
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

// left are the points of some operations at which the daemon was not killed yet.
func (m *mortal) left(ops ...string) []string {
	fired := m.fired()
	return slices.DeleteFunc(slices.Clone(m.points), func(p string) bool {
		return slices.Contains(fired, p) || len(ops) > 0 && !slices.Contains(ops, strings.TrimPrefix(operation(p), fault.Store+"."))
	})
}

// rehearse repeats a scene until the daemon has died at every point of the operations that it is there for.
func (m *mortal) rehearse(name string, ops []string, scene func(round string)) {
	m.Helper()
	if !regexp.MustCompile(*scenes).MatchString(name) {
		return
	}
	begun := time.Now()
	for round := range 12 {
		scene(fmt.Sprintf("%s-%s-%d", name, m.tag, round))
		left := m.left(ops...)
		m.Logf("%s, round %d: %d deaths, %d of its points left, %s", name, round, m.deathsYet(), len(left), time.Since(begun).Round(time.Second))
		if len(left) == 0 {
			return
		}
	}
	m.Errorf("%s never passed %v", name, m.left(ops...))
}

func (m *mortal) deathsYet() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deaths
}

// box records a sandbox with an ID, so that a repeated call makes no second one.
func (m *mortal) box(id string, spec *agboxv1.CreateSpec) string {
	m.Helper()
	if spec.Image == "" {
		spec.Image = baseImage
	}
	must(m.CreateSandbox(m.ctx(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: spec}))(m)
	return id
}

// run starts an exec with an ID.
func (m *mortal) run(box, id string, command ...string) string {
	m.Helper()
	must(m.CreateExec(m.ctx(), &agboxv1.CreateExecRequest{SandboxId: box, ExecId: id, Command: command}))(m)
	return id
}

// once checks that the mark of an exec was made once.
func (m *mortal) once(box, id, mark string) {
	m.Helper()
	m.run(box, id, "sh", "-c", "test $(wc -l <"+mark+") = 1")
	if st := m.ended(id); st.GetExitCode() != 0 {
		m.Errorf("%s: the exec that made %s did not run once: %v", box, mark, st)
	}
}

// gone deletes a sandbox and checks that no object or file of it is left.
func (m *mortal) gone(id string) {
	m.Helper()
	must(m.DeleteSandbox(m.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: id}))(m)
	m.await(id, deleted)
	if held := m.held(id); held != "" {
		m.Errorf("after the delete of %s there is still %s", id, held)
	}
}
