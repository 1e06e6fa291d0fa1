package execid

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// TestKinds: IDs are in journals and records, so their form is fixed.
func TestKinds(t *testing.T) {
	for id, want := range map[string]Kind{
		ForAgent("a-1_b", 12): Agent, "a-1_b.12": Agent,
		ForHook(0): Hook, "_hook.0": Hook, "_hook.1": Hook, "_hook.0.end": Hook,
		"_save.2c70e12b7a0646f9":    Helper,
		"_summary.2c70e12b7a0646f9": Helper,
		"_runtime":                  Proof, "_main": MainProcess, "_other": Unknown, "_": Unknown,
		"": Client, "exec-1": Client, "exec": Client, "abc.": Client, ".1": Client, "abc.0": Client, "abc.01": Client, "abc.x": Client, "abc.1.2": Client,
	} {
		if got := KindOf(id); got != want {
			t.Errorf("%q is of kind %d, not %d", id, got, want)
		}
		internal := want != Client && want != Agent
		if Internal(id) != internal {
			t.Errorf("%q: internal is %v", id, Internal(id))
		}
		if agentID, n, ok := OfAgent(id); ok != (want == Agent) || ok && (agentID != "a-1_b" || n != 12) || !ok && (agentID != "" || n != 0) {
			t.Errorf("%q is process %d of agent %q, %v", id, n, agentID, ok)
		}
	}
	if got := ForHelper(ToSave, "key"); got != "_save.2c70e12b7a0646f9" {
		t.Errorf("a helper of an earlier daemon would not be found: %s", got)
	}
	for _, id := range []string{ForAgent("agent", 1), ForHook(3), ForHelper(ToSave, ""), Main, Runtime} {
		if KindOf(id) == Client || len(validate.ExecID(id)) == 0 {
			t.Errorf("a client may choose %q", id)
		}
	}
}

func TestAClientsIDIsOfNoOtherKind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[0-9A-Za-z_.-]{4,20}`).Draw(t, "id")
		if len(validate.ExecID(id)) == 0 && KindOf(id) != Client {
			t.Errorf("%q is of kind %d", id, KindOf(id))
		}
	})
}
