package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/manifest"
)

const (
	agentIdle    = agboxv1.AgentState_AGENT_STATE_IDLE
	agentBusy    = agboxv1.AgentState_AGENT_STATE_BUSY
	agentStopped = agboxv1.AgentState_AGENT_STATE_STOPPED
	agentFailed  = agboxv1.AgentState_AGENT_STATE_FAILED
)

func TestAgentRow(t *testing.T) {
	now := time.Unix(1000, 0)
	for want, change := range map[string]func(*agboxv1.AgentHandle){
		"bot|IDLE|work|0|1m|":                                func(*agboxv1.AgentHandle) {},
		"bot|IDLE|work|0|1m|1 prompt held: its process died": func(h *agboxv1.AgentHandle) { h.HeldPrompts, h.HeldReason = 1, "its process died" },
		"bot|IDLE?|work|0|1m|":                               func(h *agboxv1.AgentHandle) { h.Unverified = true },
		"bot|BUSY|work|0|1m|2 prompts queued":                func(h *agboxv1.AgentHandle) { h.State, h.Activity, h.QueuedPrompts = agentBusy, "BUSY", 2 },
		"bot|IDLE|work|0|1m|stopping":                        func(h *agboxv1.AgentHandle) { h.DesiredState, h.StatusMessage = "stopped", "stopping" },
		"bot|FAILED|work|6 (5 tries)|1m|needs attention; exit code 3; 1 prompt queued": func(h *agboxv1.AgentHandle) {
			h.State, h.Activity, h.NeedsAttention, h.StatusMessage, h.Attempts, h.Incarnation, h.QueuedPrompts = agentFailed, "", true, "exit code 3", 5, 7, 1
		},
		"bot|STOPPED|work|0|1m|restarts automatically; work saved": func(h *agboxv1.AgentHandle) { h.State, h.Activity, h.Parked, h.Saved = agentStopped, "", true, "saved" },
		"bot|IDLE|(deleted)|0|1m|deleting":                         func(h *agboxv1.AgentHandle) { h.SandboxId, h.DesiredState = "gone", "deleted" },
		"bot|STOPPED|(deleted)|0|1m|waits for sandbox work; its sandbox is DELETED": func(h *agboxv1.AgentHandle) {
			h.SandboxId, h.State, h.Activity, h.Parked, h.MovesTo, h.StatusMessage = "gone", agentStopped, "", true, "work", "its sandbox is DELETED"
		},
		"bot|BUSY|work|0|1m|moves to lab; 1 prompt queued": func(h *agboxv1.AgentHandle) {
			h.State, h.Activity, h.MovesTo, h.QueuedPrompts = agentBusy, "BUSY", "other", 1
		},
		"0123456789ab|IDLE|work|0|1m|":     func(h *agboxv1.AgentHandle) { h.Name, h.AgentId = "", "0123456789abcdef" },
		"a-name-that-is-…|IDLE|work|0|1m|": func(h *agboxv1.AgentHandle) { h.Name = "a-name-that-is-too-long" },
	} {
		one := &agboxv1.AgentHandle{
			AgentId: "abcd", Name: "bot", SandboxId: "boxx", State: agentIdle, Activity: "IDLE", DesiredState: "running", Incarnation: 1,
			CreatedAt: timestamppb.New(now.Add(-time.Minute)),
		}
		change(one)
		want = strings.Replace(want, "|1m|", "|60s|", 1)
		if got := strings.Join(agentRow(one, map[string]string{"boxx": "work", "other": "lab"}, false, now), "|"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if wide := agentRow(one, nil, true, now); len(wide) != len(agentHeader(true)) {
			t.Errorf("%d cells for %d columns", len(wide), len(agentHeader(true)))
		}
	}
}

func TestAsleepSaysWhatToDo(t *testing.T) {
	hint := `; the prompt waits in its queue; "agbox agent start bot" starts it`
	for want, one := range map[string]*agboxv1.AgentHandle{
		"":                                     {State: agentBusy, DesiredState: "running"},
		"agent bot is STOPPED" + hint:          {State: agentStopped, DesiredState: "stopped"},
		"agent bot is BUSY" + hint:             {State: agentBusy, DesiredState: "stopped"},
		"agent bot is FAILED (it died)" + hint: {State: agentFailed, DesiredState: "running", NeedsAttention: true, StatusMessage: "it died"},
		"agent bot is IDLE and being deleted":  {State: agentIdle, DesiredState: "deleted"},
	} {
		one.Name = "bot"
		if got := asleep(one); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, one := range []*agboxv1.AgentHandle{
		{State: agentFailed, DesiredState: "running"}, {State: agentStopped, DesiredState: "running", Parked: true}, {DesiredState: "running"},
	} {
		if got := asleep(one); got != "" {
			t.Errorf("%v comes back: %q", one, got)
		}
	}
}

func TestPrintedAgentsAreReadBack(t *testing.T) {
	spec := &agboxv1.AgentSpec{
		SandboxId: "boxx", Command: []string{"bot", "- a"}, Envs: map[string]string{"A": "1.10"}, InitialPrompt: "a\nb\n", Labels: map[string]string{"a": "true"},
		StartTimeout: durationpb.New(time.Minute), Context: &agboxv1.AgentContextPolicy{MaxTurns: 7}, SaveCommand: []string{"sh", "-c", "x: y"},
	}
	doc, err := (&app{}).agentKind().document(&agboxv1.AgentHandle{AgentId: "abcd", Name: "bot", Spec: spec, Labels: spec.Labels, StatusMessage: "a: b"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&app{Streams: Streams{Out: &out}}).printYAML([]kindDocument{doc}, &output{format: "yaml"}); err != nil {
		t.Fatal(err)
	}
	got, err := manifest.Parse(out.Bytes(), "")
	if err != nil || len(got) != 1 || got[0].Name != "bot" || !proto.Equal(got[0].Agent, spec) {
		t.Errorf("%v: got %v from\n%s", err, got, out.String())
	}
}

func TestTheSandboxAndTheDesiredStateOfAnAgentChangeInPlace(t *testing.T) {
	old := &agboxv1.AgentHandle{SandboxId: "boxx", DesiredState: "running", Spec: &agboxv1.AgentSpec{SandboxId: "boxx", Command: []string{"bot"}, DesiredState: "stopped"}}
	for want, spec := range map[string]*agboxv1.AgentSpec{
		"| ":                             {SandboxId: "boxx", Command: []string{"bot"}, Format: "native"},
		"desired_state | ":               {SandboxId: "boxx", Command: []string{"bot"}, DesiredState: "stopped"},
		"command nudge | command nudge ": {SandboxId: "boxx", Command: []string{"bot", "x"}, Nudge: "stop"},
		"sandbox_id | ":                  {SandboxId: "other", Command: []string{"bot"}},
	} {
		changes, fixed := agentDifferences(old, spec)
		got := ""
		for _, one := range changes {
			got += one.Path + " "
		}
		got += "| " + strings.Join(append(fixed, ""), " ")
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	old.MovesTo = "other"
	if changes, _ := agentDifferences(old, &agboxv1.AgentSpec{SandboxId: "other", Command: []string{"bot"}}); len(changes) > 0 {
		t.Errorf("it moves there already: %v", changes)
	}
}

func TestDrainText(t *testing.T) {
	now := time.Unix(1000, 0)
	for want, s := range map[string]*agboxv1.DrainStatus{
		"waiting for 2 busy agents (a, b), at most 9m30s; 3 parked": {
			Busy: 2, BusyAgents: []string{"a", "b"}, Parked: 3, WaitUntil: timestamppb.New(now.Add(570 * time.Second)),
		},
		"waiting for 1 busy agent; 0 parked":            {Busy: 1},
		"detaching from the agents, which keep working": {Mode: agboxv1.DrainMode_DRAIN_MODE_DETACH, Busy: 1},
		"ending idle agents; 3 parked":                  {Parked: 3, WaitUntil: timestamppb.New(now.Add(time.Minute))},
		"saving the work of 1 busy agent (a); 4 parked, 1 saved, 2 not saved": {
			Phase: agboxv1.DrainPhase_DRAIN_PHASE_SAVING, Busy: 1, BusyAgents: []string{"a"}, Parked: 4, Saved: 1, NotSaved: 2,
		},
	} {
		if got := drainText(s, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
