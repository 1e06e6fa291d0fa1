//go:build docker

package e2e

import (
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// TestTheReasonQuotesTheLastOutputOfAnAgent: real processes, also one that the shim gives up.
func TestTheReasonQuotesTheLastOutputOfAnAgent(t *testing.T) {
	c := patient(t)
	for id, x := range map[string]struct{ format, script, want string }{
		"keyless": {"native", `echo loading; echo "Error: $KEY is no key" >&2; exit 3`, "its process ended with code 3 before it was ready: Error: [redacted] is no key"},
		"newer": {"acp", `read x; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":2}}'; exec sleep 1000`,
			"its process ended with code 1 before it was ready: agbox-shim: acp: no session: the agent speaks version 2 of the Agent Client Protocol, not 1"},
	} {
		c.hire(id, x.format, "native", func(spec *agboxv1.AgentSpec) {
			spec.Command, spec.RestartPolicy, spec.Envs = []string{"sh", "-c", x.script}, "never", map[string]string{"KEY": "hunter22"}
		})
		if a := c.awaitAgent(id, agentFailed); a.GetStatusMessage() != x.want {
			t.Errorf("%s: %q, want %q", id, a.GetStatusMessage(), x.want)
		}
	}
}

// TestAStragglerOutsideAWorkTreeHasNothingToSave: it is no failure to save.
func TestAStragglerOutsideAWorkTreeHasNothingToSave(t *testing.T) {
	c := patient(t)
	c.hire("worker", "native", "native")
	c.tell("worker", "work", "sleep 1000")
	c.awaitAgent("worker", agentBusy)
	s := c.drain(&agboxv1.DrainRequest{Wait: seconds(0), SaveEach: seconds(20)})
	if a := c.agent("worker"); s.GetSaved()+s.GetNotSaved() != 0 || a.GetSaved() != "" || !a.GetParked() {
		t.Errorf("%v, %v", s, a)
	}
}
