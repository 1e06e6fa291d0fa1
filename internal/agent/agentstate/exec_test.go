package agentstate

import "testing"

func TestExecIDsNameAgentAndNumber(t *testing.T) {
	if id, n, ok := OfExec(ExecID("a-1_b", 12)); id != "a-1_b" || n != 12 || !ok {
		t.Errorf("got %s, %d, %v", id, n, ok)
	}
	for _, id := range []string{"", "abc", "abc.", ".1", "abc.0", "abc.01", "abc.x", "abc.1.2", "_hook.x"} {
		if agent, n, ok := OfExec(id); ok {
			t.Errorf("%q is parsed as process %d of agent %q", id, n, agent)
		}
	}
}
