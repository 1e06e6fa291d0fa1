package controller_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

const (
	agentPending  = agboxv1.AgentState_AGENT_STATE_PENDING
	agentStarting = agboxv1.AgentState_AGENT_STATE_STARTING
	agentFailed   = agboxv1.AgentState_AGENT_STATE_FAILED
)

// TestRecoveryAfterTheDaemonWasAway has a row for each pair of a recorded state and an event while no daemon ran.
func TestRecoveryAfterTheDaemonWasAway(t *testing.T) {
	const work = "SPAWN CONNECTED PROMPT_RECEIVED"
	for _, row := range []struct {
		name, flags, text string
		was               agboxv1.AgentState // when the daemon was killed
		is                agboxv1.AgentState // when the next one has observed everything
		triggers          string             // half a minute later
		outcomes          string
		given             int
	}{
		{name: "STARTING, and ready meanwhile", flags: "boot=5000", was: agentStarting, is: agentIdle, triggers: "SPAWN CONNECTED"},
		{name: "STARTING, and alive", flags: "boot=15000", was: agentStarting, is: agentStarting, triggers: "SPAWN CONNECTED"},
		{name: "STARTING, and dead", flags: "boot=5000 die=1 until=2", was: agentStarting, is: agentFailed,
			triggers: "SPAWN PROCESS_CRASHED SPAWN CONNECTED"},
		{name: "STARTING, and gone with 0", flags: "boot=5000 die=0 until=2", was: agentStarting, is: agentFailed,
			triggers: "SPAWN PROCESS_EXITED SPAWN CONNECTED"},
		{name: "IDLE, and alive", was: agentIdle, is: agentIdle, triggers: "SPAWN CONNECTED"},
		{name: "IDLE, and gone with 0", flags: "life=5000 die=0", was: agentIdle, is: agentStopped, triggers: "SPAWN CONNECTED PROCESS_EXITED"},
		{name: "IDLE, and dead", flags: "life=5000 die=1 until=2", was: agentIdle, is: agentFailed,
			triggers: "SPAWN CONNECTED PROCESS_CRASHED SPAWN CONNECTED"},
		{name: "BUSY, and alive: nothing is repeated", text: "work 20000", was: agentBusy, is: agentBusy, triggers: work + " RESULT_RECEIVED",
			outcomes: ":end_turn", given: 1},
		{name: "BUSY, and its result is there: IDLE first", text: "work 5000", was: agentBusy, is: agentIdle, triggers: work + " RESULT_RECEIVED",
			outcomes: ":end_turn", given: 1},
		{name: "BUSY, its result is there, and it is gone with 0", text: "result-then-exit 5000", was: agentBusy, is: agentStopped,
			triggers: work + " RESULT_RECEIVED PROCESS_EXITED", outcomes: ":end_turn", given: 1},
		{name: "BUSY, its result is there, and it is dead", text: "result-then-die 5000", was: agentBusy, is: agentFailed,
			triggers: work + " RESULT_RECEIVED PROCESS_CRASHED SPAWN CONNECTED", outcomes: ":end_turn", given: 1},
		{name: "BUSY, and dead in the turn: one redelivery", text: "crash-before 2 5000", was: agentBusy, is: agentFailed,
			triggers: work + " PROCESS_CRASHED SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED", outcomes: ":interrupted :end_turn", given: 2},
		{name: "BUSY, and gone with 0 in the turn", text: "exit 5000", was: agentBusy, is: agentFailed, given: 2,
			triggers: work + " PROCESS_EXITED SPAWN CONNECTED PROMPT_RECEIVED PROCESS_EXITED SPAWN CONNECTED", outcomes: ":interrupted :interrupted"},
	} {
		t.Run(row.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				box := p.readyBox(t)
				spec := &agboxv1.AgentSpec{Command: append([]string{"agent"}, strings.Fields(row.flags)...)}
				p.newAgent(t, box, "ada", spec)
				pass(time.Second)
				if row.text != "" {
					p.prompt(t, "ada", row.text)
					pass(50 * time.Millisecond)
				}
				p.wantAgent(t, "ada", row.was)
				if err := p.kill(); err != nil {
					t.Fatal(err)
				}
				pass(10 * time.Second)
				if err := p.start(-1); err != nil {
					t.Fatal(err)
				}
				pass(200 * time.Millisecond)
				p.wantAgent(t, "ada", row.is)
				if _, unverified := p.daemon.AgentStatus("ada"); unverified {
					t.Error("it is unverified")
				}
				pass(30 * time.Second)
				p.wantTriggers(t, "ada", row.triggers)
				p.wantOutcomes(t, "ada", named(row.outcomes, ":", row.text))
				p.wantGiven(t, row.text, row.given)
			})
		})
	}
}

func TestAnAgentThatWasNeverAttemptedStartsNormally(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		box := p.readyBox(t)
		if err := p.restart(0); err != nil { // this one has no side effects any more
			t.Fatal(err)
		}
		p.newAgent(t, box, "ada", nil)
		pass(time.Second)
		p.wantAgent(t, "ada", agentPending)
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		p.wantTriggers(t, "ada", "SPAWN CONNECTED")
	})
}

// blindExecs cannot read journals while blind is set.
type blindExecs struct {
	controller.Execs
	blind *atomic.Bool
}

func (b blindExecs) Status(sandboxID, execID, nonce string) (execjournal.Status, error) {
	if b.blind.Load() {
		return execjournal.Status{}, errors.New("input/output error")
	}
	return b.Execs.Status(sandboxID, execID, nonce)
}

// TestNoVerdictOnAnUnclearAnswer: an agent whose journal cannot be read keeps its state, and its status says why.
func TestNoVerdictOnAnUnclearAnswer(t *testing.T) {
	var blind atomic.Bool
	withDaemon(t, func(t *testing.T, p *player) {
		box := p.readyBox(t)
		p.newAgent(t, box, "ada", nil)
		p.prompt(t, "ada", "crash-before 2 5000")
		pass(2 * time.Second)
		p.wantAgent(t, "ada", agentBusy)
		blind.Store(true)
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		p.wantAgent(t, "ada", agentBusy)
		if line, unverified := p.daemon.AgentStatus("ada"); !unverified || !strings.Contains(line, "input/output error") {
			t.Errorf("unverified %v, %q", unverified, line)
		}
		blind.Store(false)
		pass(5 * time.Minute)
		p.wantAgent(t, "ada", agentIdle)
		p.wantOutcomes(t, "ada", named(":interrupted :end_turn", ":", "crash-before 2 5000"))
	}, func(c *controller.Config) { c.Execs = blindExecs{c.Execs, &blind} })
}

func TestAttemptsBackOffAndThenNeedAttention(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		box := p.readyBox(t)
		begun := time.Now()
		p.newAgent(t, box, "ada", &agboxv1.AgentSpec{Command: []string{"agent", "die=7"}})
		pass(time.Hour)
		a := p.agent(t, "ada")
		if a.Status.GetState() != agentFailed || !a.Status.GetNeedsAttention() || a.Status.GetIncarnation() != 5 {
			t.Fatalf("%v", a.Status)
		}
		// 1, 2, 4 and 8 s between five starts
		if took := time.Unix(0, a.Status.GetLastStartAt()).Sub(begun); took < 15*time.Second || took > 17*time.Second {
			t.Errorf("the fifth start came after %s", took)
		}
		p.ask(t, p.store.RequestAgentRun, "ada")
		pass(500 * time.Millisecond)
		if a := p.agent(t, "ada"); a.Status.GetIncarnation() != 6 || a.Status.GetNeedsAttention() || a.Status.GetAttempts() != 1 {
			t.Errorf("started again: %v", a.Status)
		}
	})
}

func TestTenHealthyMinutesResetTheCount(t *testing.T) {
	for _, row := range []struct {
		life  string
		tries uint64
	}{{"life=601000", 11}, {"life=60000", 5}} {
		withDaemon(t, func(t *testing.T, p *player) {
			p.newAgent(t, p.readyBox(t), "ada", &agboxv1.AgentSpec{Command: []string{"agent", "die=1", row.life}})
			pass(105 * time.Minute)
			if a := p.agent(t, "ada"); a.Status.GetIncarnation() != row.tries {
				t.Errorf("%s: %d starts, want %d: %v", row.life, a.Status.GetIncarnation(), row.tries, a.Status)
			}
		})
	}
}

func TestAnAgentThatIsNotReadyInTimeIsEndedAndTriedAgain(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		box := p.readyBox(t)
		p.newAgent(t, box, "ada", &agboxv1.AgentSpec{Command: []string{"agent", "mute"}, StartTimeout: durationpb.New(5 * time.Second)})
		pass(5500 * time.Millisecond)
		p.wantAgent(t, "ada", agentFailed)
		if active := p.store.ActiveExecs(box); len(active) != 0 {
			t.Errorf("%v still run", active)
		}
		pass(time.Hour)
		if a := p.agent(t, "ada"); a.Status.GetIncarnation() != 5 || !a.Status.GetNeedsAttention() {
			t.Errorf("%v", a.Status)
		}
	})
}

// TestAProcessThatShouldBeGoneIsEnded: the daemon died between the verdict and the end of the process.
func TestAProcessThatShouldBeGoneIsEnded(t *testing.T) {
	for tr, want := range map[agboxv1.AgentTrigger]agboxv1.AgentState{
		agboxv1.AgentTrigger_AGENT_TRIGGER_RECONCILIATION: agentFailed, agboxv1.AgentTrigger_AGENT_TRIGGER_START_TIMED_OUT: agentFailed,
		agboxv1.AgentTrigger_AGENT_TRIGGER_USER_TERMINATED: agentStopped,
	} {
		t.Run(tr.String(), func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				box := p.readyBox(t)
				p.newAgent(t, box, "ada", &agboxv1.AgentSpec{RestartPolicy: "never", Command: []string{"agent", "boot=1000"}})
				pass(500 * time.Millisecond)
				p.wantAgent(t, "ada", agentStarting)
				if err := p.restart(0); err != nil { // this one has no side effects any more
					t.Fatal(err)
				}
				if _, err := p.store.TransitionAgent(t.Context(), "ada", store.Transition{Incarnation: 1, Trigger: tr}); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				if active := p.store.ActiveExecs(box); len(active) != 1 {
					t.Fatalf("%v run", active)
				}
				if err := p.restart(-1); err != nil {
					t.Fatal(err)
				}
				pass(time.Minute)
				if active := p.store.ActiveExecs(box); len(active) != 0 {
					t.Errorf("%v still run", active)
				}
				p.wantAgent(t, "ada", want)
			})
		})
	}
}

func TestAgentsAndTheDeathOfTheEngine(t *testing.T) {
	for _, row := range []struct {
		name             string
		live, reboot     bool
		triggers, result string
	}{
		{"live-restore: it works on", true, false, "SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED", ":end_turn"},
		{"with its containers: once more", false, false,
			"SPAWN CONNECTED PROMPT_RECEIVED PROCESS_CRASHED SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED", ":interrupted :end_turn"},
		{"with the host: once more", false, true,
			"SPAWN CONNECTED PROMPT_RECEIVED PROCESS_CRASHED SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED", ":interrupted :end_turn"},
	} {
		t.Run(row.name, func(t *testing.T) {
			withAgent(t, nil, func(t *testing.T, p *player, box, id string) {
				p.prompt(t, id, "work 20000")
				pass(time.Second)
				what := "engine restart"
				if row.live {
					what += " live"
				}
				if row.reboot {
					what = "reboot"
				}
				p.must(t, act{what, 0})
				pass(2 * time.Minute)
				p.wantState(t, box, boxReady)
				p.wantTriggers(t, id, row.triggers)
				p.wantOutcomes(t, id, named(row.result, ":", "work 20000"))
			})
		})
	}
}
