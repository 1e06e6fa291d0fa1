//go:build docker

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/testing/upgrade"
)

// counts prints numbers until there is a file; then it ends with code 7.
const counts = `i=0; while [ ! -e /workspace/enough ]; do i=$((i+1)); echo $i; sleep 0.05; done; exit 7`

// moving are the answers that change while the agent of a settlement is in its turn, or as PID 1 connects to a new daemon, and those that the
// earlier version lacks.
var moving = []string{
	"agents", "agent helper", "events of agent helper", "conversation of helper", "transitions of helper",
	"sandbox */sandbox/channel", "sandboxes/sandboxes/*/channel", "sandbox */sandbox/network_mode",
	"sandbox */sandbox/created_by", "sandboxes/sandboxes/*/created_by",
}

// TestUpgradeUnderLoad: an earlier version dies under its sandboxes, execs and an agent in its turn, this one goes on with them, and so
// does the earlier one after it.
func TestUpgradeUnderLoad(t *testing.T) {
	t.Parallel()
	old := oldBinaries(t)
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.of(old)
	d.start()
	v := settle(d, counts, "count 100 100")
	ports, said := d.wantServed("site"), len(d.read(v.endless.GetStdoutLogPath()))
	was := d.answers()

	d.kill()
	d.of(binaries)
	d.start()
	v.same("after the upgrade", was)
	for range 3 { // wherever the first starts die
		d.killSometime(300 * time.Millisecond)
	}
	v.same("after kills of the new version", was)
	if now := d.wantServed("site"); now[""] != ports[""] || now["db"] != ports["db"] {
		t.Errorf("the ports were %v and are %v", ports, now)
	}
	v.goesOn(said)
	v.noRecordFiles()
	v.lives("under the new version")

	was = d.answers()
	d.kill()
	if err := os.RemoveAll(filepath.Join(d.dataDir(), "ballast")); err != nil { // as docs/operating.md demands
		t.Fatal(err)
	}
	d.of(old)
	d.start()
	v.same("after the downgrade", was)
	v.lives("under the old version again")
	was = d.answers()
	d.kill()
	d.of(binaries)
	d.start()
	v.same("after the second upgrade", was)
	v.lives("under the new version again")
	v.leave()
}

// untilSynced are the answers that need the engine, which a daemon that has just started has not listed yet.
var untilSynced = []string{"sandboxes/sandboxes/*/status_message", "sandboxes/sandboxes/*/ports", "sandbox */sandbox/status_message", "sandbox */sandbox/ports"}

// same compares with earlier answers what does not change by itself: what is on record at once, all of it once the engine was listed.
func (v *settlement) same(when string, was upgrade.Answers) {
	v.Helper()
	for _, difference := range upgrade.Differences(was, v.answers(), slices.Concat(moving, untilSynced)...) {
		v.Errorf("%s: %s", when, difference)
	}
	v.eventually(when+" all is as it was", func() error {
		if list := upgrade.Differences(was, v.answers(), moving...); len(list) > 0 {
			return errors.New(strings.Join(list, "\n"))
		}
		return nil
	})
}

// goesOn ends the endless exec, which had printed so many bytes when the old daemon died, and has the agent answer all its prompts.
func (v *settlement) goesOn(said int) {
	v.Helper()
	if r := v.result("helper", "turn"); r.GetOutcome() != "end_turn" {
		v.Errorf("the turn ended with %s %s", r.GetOutcome(), r.GetError())
	}
	v.result("helper", "second")
	v.result("helper", "third")
	var all []string
	for _, turn := range v.turns("helper") {
		if turn.GetPromptId() == "turn" && turn.GetRole() == "assistant" {
			if n := numbered(v, "the agent", turn.GetContent()); n != 100 {
				v.Errorf("the agent counted to %d", n)
			}
			continue
		}
		all = append(all, turn.GetContent())
	}
	want := "remember the milk|noted the milk|what did I say?|you said: the milk|count 100 100|" +
		"remember the honey|noted the honey|what did I say?|you said: the milk; the honey"
	if got := strings.Join(all, "|"); got != want {
		v.Errorf("the conversation is %q", got)
	}
	if a := v.agent("helper"); a.GetIncarnation() != 1 {
		v.Errorf("the agent lives its life %d", a.GetIncarnation())
	}
	v.sh("home", "touch /workspace/enough")
	st := v.ended("exec-endless")
	if st.GetState() != ruined || st.GetExitCode() != 7 || st.GetErrorCode() != "EXEC_RUN_FAILED" {
		v.Errorf("the endless exec is %s, code %d, %s", st.GetState(), st.GetExitCode(), st.GetError())
	}
	text := v.read(v.endless.GetStdoutLogPath())
	if numbered(v, "the endless exec", text); len(text) <= said {
		v.Errorf("it printed %d bytes before the upgrade, and %d in all", said, len(text))
	}
}

// lives takes old containers and a new sandbox through what can be asked of them.
func (v *settlement) lives(when string) {
	v.Helper()
	if got := v.sh("home", "echo from $HOST_UID"); !strings.HasPrefix(got, "from ") {
		v.Errorf("%s: an exec in an old container printed %q", when, got)
	}
	if got := v.ask("helper", strings.ReplaceAll(when, " ", "-"), "what did I say?"); got != "you said: the milk; the honey" {
		v.Errorf("%s: the agent says %q", when, got)
	}
	v.resume("frozen")
	v.sh("frozen", "true")
	v.freeze("frozen")
	v.resume("halted")
	v.sh("halted", "true")
	v.halt("halted")
	v.halt("site")
	v.resume("site")
	v.wantServed("site")
	fresh := v.create(&agboxv1.CreateSpec{})
	v.await(fresh, ready)
	v.sh(fresh, "true")
	v.remove(fresh)
}

// noRecordFiles checks that nothing is left of the files in which the version before the log kept its copies.
func (v *settlement) noRecordFiles() {
	v.Helper()
	for _, pattern := range []string{"s/*/record", "s/*/execs", "s/*/.*.tmp", "agents"} {
		if left, _ := filepath.Glob(filepath.Join(v.dataDir(), pattern)); len(left) > 0 {
			v.Errorf("left are %v", left)
		}
	}
}

// leave deletes everything; nothing may be left of it.
func (v *settlement) leave() {
	v.Helper()
	must(v.agents().DeleteAgent(v.ctx(), &agboxv1.DeleteAgentRequest{AgentId: "helper"}))(v)
	for _, id := range []string{"site", "halted", "frozen", "broken", "home"} {
		v.remove(id)
	}
	if left := v.docker("ps", "-aq", "--filter", "label=io.github.1996fanrui.agents-sandbox.instance="+strings.TrimSpace(v.read(v.dataDir()+"/instance"))); left != "" {
		v.Errorf("containers are left: %s", left)
	}
	if left, _ := os.ReadDir(v.dataDir() + "/s"); len(left) > 0 {
		v.Errorf("%d run directories are left", len(left))
	}
}
