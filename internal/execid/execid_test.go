package execid

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

const client, agent, hook, helper, internal = "a client's", "an agent's", "a hook", "a helper", "internal"

func kindOf(id string) string {
	switch _, _, ok := OfAgent(id); {
	case ok:
		return agent
	case IsHook(id):
		return hook
	case IsHelper(id):
		return helper
	case Internal(id):
		return internal
	}
	return client
}

// TestKinds: IDs are in journals and records, so their form is fixed.
func TestKinds(t *testing.T) {
	for id, want := range map[string]string{
		ForAgent("a-1_b", 12): agent, "a-1_b.12": agent,
		ForHook(0): hook, "_hook.0": hook, "_hook.1": hook, "_hook.0.end": hook,
		"_save.2c70e12b7a0646f9":    helper,
		"_summary.2c70e12b7a0646f9": helper,
		"_runtime":                  internal, "_main": internal, "_other": internal, "_": internal,
		"": client, "exec-1": client, "exec": client, "abc.": client, ".1": client, "abc.0": client, "abc.01": client, "abc.x": client, "abc.1.2": client,
	} {
		if got := kindOf(id); got != want {
			t.Errorf("%q is %s, not %s", id, got, want)
		}
		if Internal(id) != (want != client && want != agent) {
			t.Errorf("%q: internal is %v", id, Internal(id))
		}
		if agentID, n, ok := OfAgent(id); ok != (want == agent) || ok && (agentID != "a-1_b" || n != 12) || !ok && (agentID != "" || n != 0) {
			t.Errorf("%q is process %d of agent %q, %v", id, n, agentID, ok)
		}
	}
	if Runtime != "_runtime" || Main != "_main" {
		t.Errorf("journals of an earlier daemon would not be found: %s, %s", Runtime, Main)
	}
	if got := ForHelper(ToSave, "key"); got != "_save.2c70e12b7a0646f9" {
		t.Errorf("a helper of an earlier daemon would not be found: %s", got)
	}
	for _, id := range []string{ForAgent("agent", 1), ForHook(3), ForHelper(ToSave, ""), Main, Runtime} {
		if kindOf(id) == client || len(validate.ExecID(id)) == 0 {
			t.Errorf("a client may choose %q", id)
		}
	}
}

func TestAClientsIDIsOfNoOtherKind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[0-9A-Za-z_.-]{4,20}`).Draw(t, "id")
		if len(validate.ExecID(id)) == 0 && kindOf(id) != client {
			t.Errorf("%q is %s", id, kindOf(id))
		}
	})
}
