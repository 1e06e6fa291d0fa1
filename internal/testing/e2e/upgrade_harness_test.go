//go:build docker

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/testing/upgrade"
)

// beforeTheLog is the last version that kept record files beside ids.db instead of the log.
const beforeTheLog = "0044e0efde4c941287d79abccc262ad4d4e3a998"

// oldBinaries is a directory with the programs of an earlier version: AGBOX_OLD_BIN, or what hack/upgrade-bin.sh builds from the history.
// A checkout without that commit, such as a shallow one, skips the test.
func oldBinaries(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("AGBOX_OLD_BIN"); dir != "" {
		t.Logf("upgrade from the programs in AGBOX_OLD_BIN=%s", dir)
		return dir
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute) // a cold build cache
	defer cancel()
	out, err := exec.CommandContext(ctx, "../../../hack/upgrade-bin.sh", beforeTheLog, dir).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 {
		t.Skipf("no earlier version to upgrade from: %s", out) // nothing to wait for: the history does not have it
	}
	if err != nil {
		t.Fatalf("build %s: %v\n%s", beforeTheLog, err, out)
	}
	t.Logf("upgrade from %s, built from the history", beforeTheLog)
	return dir
}

// settlement has a sandbox in each state, execs and an agent, made by whichever daemon runs. Its IDs are names.
type settlement struct {
	*crew
	endless *agboxv1.CreateExecResponse
}

// settle makes the settlement. Afterwards nothing of it changes by itself but the output of the endless exec and what the agent says in its
// turn, which is prompt "turn"; prompts "second" and "third" are queued behind it.
func settle(d *daemon, endless, turn string) *settlement {
	d.Helper()
	serve := listening(0)
	serve.Labels, serve.Envs = map[string]string{"team": "blue", "tier": "front"}, map[string]string{"SECRET": "of site"}
	serve.Timeout, serve.OnTimeout = durationpb.New(10*365*24*time.Hour), "pause"
	d.settler("site", serve)
	d.settler("halted", &agboxv1.CreateSpec{Labels: map[string]string{"team": "blue"}})
	d.settler("frozen", &agboxv1.CreateSpec{})
	d.settler("broken", &agboxv1.CreateSpec{Command: []string{"sh", "-c", "echo last words; exit 42"}})
	d.settler("gone", &agboxv1.CreateSpec{Labels: map[string]string{"team": "red"}})
	d.settler("home", &agboxv1.CreateSpec{
		Mounts: []*agboxv1.MountSpec{{Source: filepath.Join(binaries, "testagent"), Target: "/bin/testagent"}},
	})
	for _, id := range []string{"site", "halted", "frozen", "gone", "home"} {
		d.await(id, ready)
	}
	d.await("broken", failed)
	d.freeze("frozen")
	d.halt("halted")
	d.remove("gone")

	v := &settlement{crew: &crew{daemon: d, box: "home"}}
	v.execs(endless)
	v.hire("helper", "native", "native", func(s *agboxv1.AgentSpec) { s.Labels = map[string]string{"role": "helper"} })
	v.awaitAgent("helper", agentIdle)
	v.ask("helper", "first", "remember the milk")
	v.ask("helper", "recall", "what did I say?")
	v.tell("helper", "turn", turn)
	v.tell("helper", "second", "remember the honey")
	v.tell("helper", "third", "what did I say?")
	v.agentIs("helper", "in its turn, with two prompts behind it", func(a *agboxv1.AgentHandle) bool {
		return a.GetState() == agentBusy && a.GetPromptId() == "turn" && a.GetQueuedPrompts() == 2
	})
	return v
}

func (d *daemon) settler(id string, spec *agboxv1.CreateSpec) {
	d.Helper()
	spec.Image = baseImage
	must(d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{SandboxId: id, Name: "the-" + id, CreateSpec: spec}))(d)
}

// execs run in "home": of each end one, and one that runs on.
func (v *settlement) execs(endless string) {
	v.Helper()
	run := func(id, script string) *agboxv1.CreateExecResponse {
		v.Helper()
		req := &agboxv1.CreateExecRequest{
			SandboxId: "home", ExecId: id, Command: []string{"sh", "-c", script}, Cwd: "/tmp", EnvOverrides: map[string]string{"EXEC": id},
		}
		return must(v.CreateExec(v.ctx(), req))(v)
	}
	run("exec-done", "echo out of $EXEC; echo err >&2")
	run("exec-failed", "echo before; exit 3")
	cancelled := run("exec-cancelled", "echo begun; sleep 100000")
	v.printed(cancelled, 1)
	must(v.CancelExec(v.ctx(), &agboxv1.CancelExecRequest{ExecId: "exec-cancelled"}))(v)
	for _, id := range []string{"exec-done", "exec-failed", "exec-cancelled"} {
		v.ended(id)
	}
	v.endless = run("exec-endless", endless)
	v.printed(v.endless, 1)
}

// answers are those of the daemon that runs.
func (d *daemon) answers() upgrade.Answers {
	d.Helper()
	return must(upgrade.Ask(d.ctx(), d.conn, d.dataDir()))(d)
}

func (d *daemon) dataDir() string { return filepath.Join(d.home, "data/agents-sandbox") }

// of has the daemon be that of a directory of programs from its next start.
func (d *daemon) of(dir string) {
	d.program = filepath.Join(dir, "agboxd")
}

// numbered checks that text is the numbers from 1, a line each, and returns how many there are.
func numbered(t testing.TB, what, text string) int {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		if line != fmt.Sprint(i+1) {
			t.Errorf("%s: line %d is %q", what, i+1, line)
			break
		}
	}
	return len(lines)
}
