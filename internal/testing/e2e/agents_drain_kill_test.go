//go:build docker

package e2e

import (
	"errors"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	waitingPhase = agboxv1.DrainPhase_DRAIN_PHASE_WAITING
	donePhase    = agboxv1.DrainPhase_DRAIN_PHASE_DONE

	// untilGo lets the test say when it goes on. SIGTERM goes to all processes: this one must not end first, and with it the turn.
	untilGo  = "trap '' TERM; while [ ! -e /workspace/go ]; do sleep 0.1; done"
	slowSave = "touch /workspace/saving; " + untilGo + `
		git add -A && git -c user.name=me -c user.email=me@localhost commit -q -m "by command" && git push -q origin HEAD`
)

// drainKill is a moment of a drain at which the daemon is killed.
type drainKill struct {
	name  string
	wait  int64 // drain.wait in seconds
	deaf  bool  // the worker heeds no interrupt and no SIGTERM
	phase agboxv1.DrainPhase
	// sign says that the moment has come, besides the phase; nil: the phase does.
	sign func(c *crew)
	save []string
	// given is how often the prompt of the worker is given in all, and saved what reaches the origin.
	given int
	saved string
}

var drainKills = []drainKill{
	{name: "waiting", wait: 60, phase: waitingPhase, given: 1},
	// Seconds pass before its process is ended.
	{name: "saving, the straggler interrupted", deaf: true, phase: savingPhase, given: 1},
	{name: "saving, the command at work", phase: savingPhase, given: 2, save: []string{"sh", "-c", slowSave},
		sign: func(c *crew) { c.there("/workspace/saving") }, saved: "by command done"},
	{name: "done", phase: donePhase, given: 2, saved: "WIP: eviction save done"},
}

// there waits for a file.
func (c *crew) there(path string) {
	c.Helper()
	c.eventually(path+" is there", func() error {
		if got := c.sh(c.box, "[ ! -e "+path+" ] || echo yes"); got == "" {
			return errors.New("it is not")
		}
		return nil
	})
}

func (c *crew) drainPhase() agboxv1.DrainPhase {
	c.Helper()
	return must(c.admin().GetDrainStatus(c.ctx(), &agboxv1.GetDrainStatusRequest{}))(c).GetStatus().GetPhase()
}

// TestSigkillDuringADrainLosesNothing: neither the work, nor the prompt, nor a text that an agent received; and nothing is done twice
// that was not cut off.
func TestSigkillDuringADrainLosesNothing(t *testing.T) {
	for _, k := range drainKills {
		t.Run(k.name, func(t *testing.T) {
			c, origin := gitCrew(t, "")
			c.hire("worker", "native", "native", inRepo, func(spec *agboxv1.AgentSpec) { spec.SaveCommand = k.save })
			c.hire("idler", "acp", "acp")
			c.ask("idler", "told", "remember a pear")
			c.ask("worker", "told", "remember a plum")
			turn := "run echo half >>/workspace/repo/done\necho begun\nrun " + untilGo + "\necho worked"
			if k.deaf {
				turn = "ignore\n" + turn
			}
			c.tell("worker", "work", turn)
			c.said("worker", "begun")
			c.killInDrain(k)
			if got := c.drainPhase(); got != 0 {
				t.Errorf("the next daemon drains: %v", got)
			}
			c.sh(c.box, "touch /workspace/go")
			c.wantNothingLost(k)
			c.eventually("the work is in the origin", func() error {
				if k.saved == "" || commits(t, origin) == k.saved {
					return nil
				}
				return errors.New(commits(t, origin))
			})
		})
	}
}

// killInDrain kills the daemon at the moment and starts the next one.
func (c *crew) killInDrain(k drainKill) {
	c.Helper()
	must(c.admin().Drain(c.ctx(), &agboxv1.DrainRequest{Wait: seconds(k.wait)}))(c)
	c.eventually("the phase comes", func() error {
		if got := c.drainPhase(); got < k.phase {
			return errors.New(got.String())
		}
		return nil
	})
	if k.sign != nil {
		k.sign(c)
	}
	got := c.drainPhase()
	c.restart()
	if got != k.phase {
		c.Errorf("it was killed in %s", got)
	}
}

func (c *crew) wantNothingLost(k drainKill) {
	c.Helper()
	c.said("worker", "worked")
	if r := c.lastResult("worker", "work"); r.GetOutcome() != "end_turn" {
		c.Errorf("the turn ended with %v", r)
	}
	if got := strings.Count(c.sh(c.box, "cat /workspace/repo/done"), "half"); got != k.given {
		c.Errorf("the prompt was given %d times, want %d: %s, %v", got, k.given, c.moves("worker"), c.turns("worker"))
	}
	for id, want := range map[string]string{"worker": "you said: a plum", "idler": "you said: a pear"} {
		if got := c.ask(id, "asked", "what did I say?"); got != want {
			c.Errorf("%s says %q", id, got)
		}
	}
}

// lastResult waits for the end of a prompt that is not that of a turn which was cut off.
func (c *crew) lastResult(id, promptID string) (last *agboxv1.AgentResult) {
	c.Helper()
	c.eventually(id+" answers "+promptID, func() error {
		for _, e := range c.agentEvents(id) {
			if got := e.GetResult(); got.GetPromptId() == promptID {
				last = got
			}
		}
		if last == nil || last.GetOutcome() == "interrupted" {
			return errors.New(last.String())
		}
		return nil
	})
	return last
}
