//go:build docker

package e2e

import (
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

const (
	agentPending  = agboxv1.AgentState_AGENT_STATE_PENDING
	agentStarting = agboxv1.AgentState_AGENT_STATE_STARTING

	reborn    = " SPAWN=STARTING CONNECTED=IDLE"
	onceMore  = reborn + " PROMPT_RECEIVED=BUSY RESULT_RECEIVED=IDLE"
	adopted   = agboxv1.AgentRung_AGENT_RUNG_ADOPTED
	untouched = agboxv1.AgentRung_AGENT_RUNG_COLD
)

// recovery is a row of the table of recovery.
type recovery struct {
	id string
	// was is what is on record when the daemon is killed: STARTING for a program that waits before it says that it is
	// ready, BUSY for one in a turn that waits.
	was agboxv1.AgentState
	// away acts on the process while there is no daemon; nil: nothing happens to it.
	away func(c *stage, id string)
	// record is written while there is no daemon, where only a race could bring it about.
	record func(s *stage, db *store.Store, id string)
	// stays: it lives on as it was, until it is allowed to go on.
	stays bool
	rung  agboxv1.AgentRung
	// moves are the transitions after the daemon's death, and outcomes those of its turn.
	moves, outcomes string
	given           int
}

// rows of the table of recoveries.
var recoveries = []recovery{
	{id: "pending-never-attempted", record: (*stage).accept, moves: reborn},
	{id: "pending-spawned-without-a-request", record: (*stage).spawn, moves: " CONNECTED=IDLE"},
	{id: "starting-ready", was: agentStarting, away: (*stage).allow, moves: " CONNECTED=IDLE"},
	{id: "starting-alive", was: agentStarting, stays: true, moves: " CONNECTED=IDLE"},
	{id: "starting-dead", was: agentStarting, away: hit("KILL"), moves: " PROCESS_CRASHED=FAILED" + reborn},
	{id: "starting-exited", was: agentStarting, away: hit("USR1"), moves: " PROCESS_EXITED=FAILED" + reborn},
	{id: "idle-alive", was: agentIdle, stays: true, rung: adopted},
	{id: "idle-exited", was: agentIdle, away: hit("USR1"), moves: " PROCESS_EXITED=STOPPED"},
	{id: "idle-dead", was: agentIdle, away: hit("KILL"), moves: " PROCESS_CRASHED=FAILED" + reborn},
	{id: "busy-alive", was: agentBusy, stays: true, rung: adopted, moves: " RESULT_RECEIVED=IDLE", outcomes: " end_turn", given: 1},
	{id: "busy-result", was: agentBusy, away: (*stage).finish, moves: " RESULT_RECEIVED=IDLE", outcomes: " end_turn", given: 1},
	{id: "busy-result-exited", was: agentBusy, away: finishThen("USR1"), given: 1,
		moves: " RESULT_RECEIVED=IDLE PROCESS_EXITED=STOPPED", outcomes: " end_turn"},
	{id: "busy-result-dead", was: agentBusy, away: finishThen("KILL"), given: 1,
		moves: " RESULT_RECEIVED=IDLE PROCESS_CRASHED=FAILED" + reborn, outcomes: " end_turn"},
	{id: "busy-dead", was: agentBusy, away: hit("KILL"), given: 2,
		moves: " PROCESS_CRASHED=FAILED" + onceMore, outcomes: " interrupted end_turn"},
	{id: "busy-exited", was: agentBusy, away: hit("USR1"), given: 2,
		moves: " PROCESS_EXITED=FAILED" + onceMore, outcomes: " interrupted end_turn"},
	{id: "stopped-alive", was: agentIdle, record: declare(agboxv1.AgentTrigger_AGENT_TRIGGER_USER_TERMINATED), moves: " USER_TERMINATED=STOPPED"},
	{id: "failed-alive", was: agentIdle, record: declare(agboxv1.AgentTrigger_AGENT_TRIGGER_RECONCILIATION),
		moves: " RECONCILIATION=FAILED" + reborn},
	{id: "failed-alive-busy", was: agentBusy, record: declare(agboxv1.AgentTrigger_AGENT_TRIGGER_RECONCILIATION), given: 2,
		moves: " RECONCILIATION=FAILED" + onceMore, outcomes: " interrupted end_turn"},
}

// TestEachRowOfTheRecoveryTable brings all of them about in one sandbox, with processes that are really there, or were, behind a
// daemon that was really killed.
func TestEachRowOfTheRecoveryTable(t *testing.T) {
	s := newStage(patient(t))
	for _, r := range recoveries {
		s.setUp(r)
	}
	for _, r := range recoveries {
		s.begun(r)
	}
	s.kill()
	s.whileAway()
	s.start()
	for _, r := range recoveries {
		if r.stays {
			s.wantAsItWas(r)
		}
	}
	s.outside("touch /workspace/all.go")
	for _, r := range recoveries {
		s.wantVerdict(r)
	}
	for _, r := range recoveries { // and nothing comes after it
		s.wantVerdict(r)
		s.wantOneProcess(r)
	}
	s.remove(s.box)
}

// TestAttemptsContinueFromTheCountOfAKilledDaemon: five in a row, whoever counts them.
func TestAttemptsContinueFromTheCountOfAKilledDaemon(t *testing.T) {
	c := patient(t)
	c.hire("doomed", "native", "native", func(spec *agboxv1.AgentSpec) { spec.Command = []string{"sh", "-c", "exit 7"} })
	for n := range uint64(4) {
		c.agentIs("doomed", "in its next life", func(a *agboxv1.AgentHandle) bool { return a.GetIncarnation() > n })
		c.restart()
	}
	a := c.agentIs("doomed", "given up", (*agboxv1.AgentHandle).GetNeedsAttention)
	if a.GetState() != agentFailed || a.GetIncarnation() != 5 || a.GetAttempts() != 5 {
		t.Errorf("%v", a)
	}
	c.restart()
	if a := c.agentIs("doomed", "looked at", func(a *agboxv1.AgentHandle) bool { return !a.GetUnverified() }); a.GetIncarnation() != 5 || !a.GetNeedsAttention() {
		t.Errorf("after another restart: %v", a)
	}
	must(c.agents().StartAgent(c.ctx(), &agboxv1.StartAgentRequest{AgentId: "doomed"}))(t)
	c.agentIs("doomed", "tried again", func(a *agboxv1.AgentHandle) bool { return a.GetIncarnation() == 6 && !a.GetNeedsAttention() })
}
