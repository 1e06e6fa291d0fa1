package cli

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/termsafe"
)

func TestNamedPrefersTheLiveOne(t *testing.T) {
	sb := func(id, name string, state agboxv1.SandboxState) *agboxv1.SandboxHandle {
		return &agboxv1.SandboxHandle{SandboxId: id, Name: name, State: state}
	}
	named := (&app{}).sandboxKind().named
	deleting, ready := agboxv1.SandboxState_SANDBOX_STATE_DELETING, agboxv1.SandboxState_SANDBOX_STATE_READY
	all := []*agboxv1.SandboxHandle{sb("new", "web", deleting), sb("live", "web", ready), sb("old", "web", deleting), sb("none", "", ready)}
	if got := named(all, "web"); got.GetSandboxId() != "live" {
		t.Errorf("got %s", got.GetSandboxId())
	}
	if got := named(append(all[:1:1], all[2]), "web"); got.GetSandboxId() != "new" {
		t.Errorf("got %s", got.GetSandboxId())
	}
	if named(all, "") != nil || named(all, "x") != nil {
		t.Error("found by no name")
	}
}

func TestAge(t *testing.T) {
	now := time.Unix(1e9, 0)
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 179 * time.Minute: "179m", 3 * time.Hour: "3h",
		47 * time.Hour: "47h", 48 * time.Hour: "2d", 10000 * time.Hour: "416d",
	} {
		if got := age(now.Add(-d), now); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}

func TestALineHasNoTerminalControls(t *testing.T) {
	if got := termsafe.Line("a\x1b[31mb\nc\u009bd"); got != `a^[[31mb c\x9bd` {
		t.Errorf("got %q", got)
	}
}
