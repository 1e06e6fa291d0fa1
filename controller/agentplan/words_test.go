package agentplan

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestTheReasonOfAnEnd(t *testing.T) {
	const idle, starting = agboxv1.AgentState_AGENT_STATE_IDLE, agboxv1.AgentState_AGENT_STATE_STARTING
	for _, c := range []struct {
		r    Record
		w    World
		want string
	}{
		{Record{State: idle, Attempts: 1}, World{ExitCode: 1, Words: "no key"}, "its process ended with code 1: no key"},
		{Record{State: idle, Attempts: 1}, World{ExitCode: 1}, "its process ended with code 1"},
		{Record{State: starting, Attempts: 1}, World{Words: "no key"}, "its process ended with code 0 before it was ready: no key"},
		{Record{State: starting, Attempts: 1}, World{ExitCode: 137, Killed: "killed: out of memory", Words: "loading"},
			"its process ended with code 137 before it was ready: killed: out of memory: loading"},
		{Record{State: idle, Attempts: 1}, World{Words: "bye"}, "its process ended with code 0"},
		{Record{State: idle, Attempts: MaxAttempts}, World{ExitCode: 1, Words: "no key"},
			"its process ended with code 1: no key; it failed to start 5 times in a row and is not restarted automatically"},
		{Record{State: idle}, World{Cancelled: true}, "it ended with its sandbox, or for a drain"},
		{Record{State: idle}, World{Cancelled: true, Destination: "there"}, "it ended to move to another sandbox"},
		{Record{State: idle}, World{Cancelled: true, Destination: "there", Draining: true}, "it ended with its sandbox, or for a drain"},
	} {
		c.w.Process = Ended
		if p := Decide(c.r, c.w, time.Now()); p.Reason != c.want {
			t.Errorf("%+v %+v: %q, want %q", c.r, c.w, p.Reason, c.want)
		}
	}
}
