//go:build docker

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// wantMemory checks that each agent knows what it was told, in the life that it has then, and how that life got its past: rungs has the
// possible transitions, separated by "|".
func (c *crew) wantMemory(label string, life uint64, rungs func(way string) string) {
	c.Helper()
	for _, f := range formats {
		c.awaitLife(f.id, life)
		if got := c.ask(f.id, label, "what did I say?"); got != "you said: a plum" {
			c.Errorf("%s: %s says %q", label, f.id, got)
		}
		if got, want := c.moves(f.id), rungs(f.rung); !slices.Contains(strings.Split(want, "|"), got) {
			c.Errorf("%s: %s\ngot  %s\nwant %s", label, f.id, got, want)
		}
	}
}

const aTurn = " PROMPT_RECEIVED RESULT_RECEIVED"

func (c *crew) remember() {
	c.Helper()
	c.hireAll()
	for _, f := range formats {
		if got := c.ask(f.id, "told", "remember a plum"); got != "noted a plum" {
			c.Errorf("%s says %q", f.id, got)
		}
	}
}

func TestAgentsRememberAfterTheDaemonsDeathAndTheirOwn(t *testing.T) {
	c := patient(t)
	c.remember()
	c.restart()
	rows := func(string) string { return "SPAWN/COLD CONNECTED" + aTurn + aTurn }
	c.wantMemory("daemon-killed", 1, rows)
	for _, f := range formats {
		c.kill9(f.id)
	}
	after := func(way string) string {
		return rows(way) + aTurn + " PROCESS_CRASHED SPAWN/" + way + " CONNECTED" + aTurn
	}
	c.wantMemory("was-killed", 2, after)
	c.halt(c.box)
	for _, f := range formats {
		if a := c.awaitAgent(f.id, agentStopped); !a.GetParked() {
			t.Errorf("%s is not parked", f.id)
		}
	}
	c.resume(c.box)
	c.wantMemory("sandbox-stopped-and-resumed", 3, func(way string) string {
		return after(way) + " DRAIN_PARKED SPAWN/" + way + " CONNECTED" + aTurn
	})
	c.remove(c.box)
}

func TestAgentsRememberAfterADrainAndARestart(t *testing.T) {
	c := patient(t)
	c.remember()
	if s := c.drain(&agboxv1.DrainRequest{Reason: "test"}); s.GetParked() != 3 {
		t.Errorf("%v", s)
	}
	c.stop()
	c.start()
	c.wantMemory("drained", 2, func(way string) string {
		return "SPAWN/COLD CONNECTED" + aTurn + " DRAIN_PARKED SPAWN/" + way + " CONNECTED" + aTurn
	})
	c.remove(c.box)
}

func TestAgentsRememberAfterTheDeathOfDaemonAndEngine(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprint("live restore ", live), func(t *testing.T) {
			t.Parallel()
			var args []string
			if live {
				args = append(args, "--live-restore")
			}
			e := newEngine(t, args...)
			c := newCrew(newDaemon(t, e.Host(), ""))
			c.remember()
			c.kill()
			e.Kill()
			e.Start()
			c.start()
			if live {
				c.wantMemory("all-but-the-container-died", 1, func(string) string { return "SPAWN/COLD CONNECTED" + aTurn + aTurn })
				return
			}
			c.wantMemory("all-died", 2, func(way string) string {
				begun, again := "SPAWN/COLD CONNECTED"+aTurn, " SPAWN/"+way+" CONNECTED"+aTurn
				return begun + " PROCESS_CRASHED" + again + "|" + begun + " DRAIN_PARKED" + again // the new engine sends TERM as the daemon starts
			})
		})
	}
}

func TestABusyAgentStaysBusyWhenTheDaemonIsKilled(t *testing.T) {
	c := patient(t)
	c.hireAll()
	for _, f := range formats {
		c.tell(f.id, "work", untilReleased+"echo worked")
		c.awaitAgent(f.id, agentBusy)
	}
	c.restart()
	for _, f := range formats {
		if a := c.agent(f.id); a.GetState() != agentBusy || a.GetPromptId() != "work" {
			t.Errorf("%s is %s with %q", f.id, a.GetState(), a.GetPromptId())
		}
	}
	c.release(c.box)
	for _, f := range formats {
		c.result(f.id, "work")
		turns := c.turns(f.id)
		if len(turns) != 2 || turns[1].GetContent() != "worked" || turns[1].GetInterrupted() {
			t.Errorf("%s: %v", f.id, turns)
		}
		if got := c.moves(f.id); got != "SPAWN/COLD CONNECTED"+aTurn {
			t.Errorf("%s: %s", f.id, got)
		}
	}
}

func TestATurnThatWasCutOffIsRedelivered(t *testing.T) {
	c := patient(t)
	c.hireAll()
	for _, f := range formats {
		c.ask(f.id, "told", "remember a plum")
		c.tell(f.id, "work", "echo begun\nwhat did I say?\ncrash")
	}
	for _, f := range formats {
		a := c.agentIs(f.id, "failed twice and up again", func(a *agboxv1.AgentHandle) bool {
			return a.GetIncarnation() == 3 && a.GetState() == agentIdle
		})
		if a.GetQueuedPrompts() != 0 {
			t.Errorf("%s has %d prompts", f.id, a.GetQueuedPrompts())
		}
		if got := c.moves(f.id); strings.Count(got, "PROMPT_RECEIVED PROCESS_CRASHED SPAWN/"+f.rung) != 2 {
			t.Errorf("%s: %s", f.id, got)
		}
		c.wantInterrupted(f.id)
	}
}

// wantInterrupted checks that both attempts have events, each as interrupted.
func (c *crew) wantInterrupted(id string) {
	c.Helper()
	cut := 0
	for _, e := range c.agentEvents(id) {
		if r := e.GetResult(); r.GetPromptId() == "work" && r.GetOutcome() == "interrupted" {
			cut++
		}
	}
	turns, marked := c.turns(id), 0
	for _, turn := range turns {
		if turn.GetInterrupted() && strings.Contains(turn.GetContent(), "you said: a plum") {
			marked++
		}
	}
	if cut != 2 || marked != 2 {
		c.Errorf("%s: %d ends, %d marks; %v", id, cut, marked, turns)
	}
}

func TestARepeatedPromptIsDeliveredOnce(t *testing.T) {
	c := patient(t)
	c.hireAll()
	for _, f := range formats {
		for range 3 {
			c.tell(f.id, "once", "echo hi")
		}
		c.result(f.id, "once")
		c.tell(f.id, "once", "echo hi")
	}
	c.restart()
	for _, f := range formats {
		c.tell(f.id, "once", "echo hi")
		c.ask(f.id, "another", "echo there")
		if turns := c.turns(f.id); len(turns) != 4 {
			t.Errorf("%s: %v", f.id, turns)
		}
	}
}

func TestAnInterruptEndsTheTurnAndNothingElse(t *testing.T) {
	c := patient(t)
	c.hireAll()
	for _, f := range formats {
		c.tell(f.id, "work", "sleep 1000")
		c.awaitAgent(f.id, agentBusy)
		must(c.agents().InterruptAgent(c.ctx(), &agboxv1.InterruptAgentRequest{AgentId: f.id}))(t)
		if r := c.result(f.id, "work"); r.GetOutcome() != "interrupted" {
			t.Errorf("%s: %v", f.id, r)
		}
		if got := c.ask(f.id, "next", "echo next\nask"); !strings.HasSuffix(got, "allowed: true") {
			t.Errorf("%s says %q", f.id, got)
		}
		if got := c.moves(f.id); got != "SPAWN/COLD CONNECTED"+aTurn+aTurn {
			t.Errorf("%s: %s", f.id, got)
		}
	}
}

// A container that is removed takes its sandbox with it: nothing is left to answer in, and the conversation can still be read.
func TestTheRemovalOfTheContainerFailsAgentsAndKeepsWhatWasSaid(t *testing.T) {
	c := patient(t)
	c.hireAll()
	for _, f := range formats {
		c.ask(f.id, "told", "remember a plum")
		c.tell(f.id, "work", "sleep 1000")
		c.awaitAgent(f.id, agentBusy)
	}
	c.docker("rm", "-fv", naming.Primary(c.box))
	c.await(c.box, failed)
	for _, f := range formats {
		a := c.awaitAgent(f.id, agentFailed)
		if a.GetStatusMessage() == "" || a.GetQueuedPrompts() != 1 {
			t.Errorf("%v", a)
		}
		if r := c.result(f.id, "work"); r.GetOutcome() != "interrupted" {
			t.Errorf("%s: %v", f.id, r)
		}
		if turns := c.turns(f.id); len(turns) < 3 || turns[1].GetContent() != "noted a plum" {
			t.Errorf("%s: %v", f.id, turns)
		}
	}
	again := newCrew(c.daemon)
	again.hire("another", "native", "native")
	if got := again.ask("another", "asked", "what did I say?"); got != "you said nothing" {
		t.Errorf("another agent says %q", got)
	}
	c.remove(c.box)
}
