package server_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

func TestAgentIsCreatedInANamedSandbox(t *testing.T) {
	f := newAgents(t)
	h, err := f.createAgent("agent-1", "bot", func(s *agboxv1.AgentSpec) { s.WorkingDir, s.Labels = "/x//", map[string]string{"a": "b"} })
	f.must(err)
	if h.GetAgentId() != "agent-1" || h.GetName() != "bot" || h.GetSandboxId() != "boxx" || h.GetState() != agentPending || h.GetStatus() != "PENDING" ||
		h.GetDesiredState() != "running" || h.GetFormat() != "native" || h.GetSpec().GetSandboxId() != "boxx" || h.GetSpec().GetWorkingDir() != "/x" ||
		h.GetLabels()["a"] != "b" || h.GetCreatedAt() == nil {
		t.Errorf("got %v", h)
	}
	for _, ref := range []string{"agent-1", "bot"} {
		if got := f.getAgent(ref); got.GetAgentId() != "agent-1" || got.GetSpec() == nil {
			t.Errorf("%s: got %v", ref, got)
		}
	}
	if h, err := f.createAgent("", "", func(s *agboxv1.AgentSpec) { s.SandboxId, s.DesiredState = "boxx", "stopped" }); err != nil ||
		len(h.GetAgentId()) != 36 || h.GetDesiredState() != "stopped" {
		t.Errorf("got %v, %v", h, err)
	}
}

func TestAgentCreatesAreRefused(t *testing.T) {
	f := newAgents(t)
	_, err := f.createAgent("agent-1", "bot")
	f.must(err)
	_, err = f.createAgent("agent-1", "other")
	refused(t, err, codes.AlreadyExists, "AGENT_ID_ALREADY_EXISTS", "agent_id agent-1 already exists", map[string]string{"agent_id": "agent-1"})
	_, err = f.createAgent("agent-2", "bot")
	refused(t, err, codes.AlreadyExists, "AGENT_NAME_ALREADY_EXISTS", "agent name bot already exists", nil)
	_, err = f.createAgent("agent-2", "", func(s *agboxv1.AgentSpec) { s.SandboxId = "nope" })
	refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "sandbox nope was not found", nil)
	_, err = f.createAgent("agent-2", "", func(s *agboxv1.AgentSpec) { s.Command, s.Format = nil, "x" })
	refused(t, err, codes.InvalidArgument, "INVALID_SPEC",
		`command must not be empty; format "x" is not known: write "native", "claude-stream-json", "acp"`, map[string]string{"field": "command"})
	_, err = f.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: "boxx"})
	f.must(err)
	_, err = f.createAgent("agent-2", "", func(s *agboxv1.AgentSpec) { s.SandboxId = "boxx" })
	refused(t, err, codes.FailedPrecondition, "AGENT_INVALID_STATE", "sandbox boxx is being deleted", nil)
	_, err = f.createAgent("agent-2", "")
	refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "sandbox work was not found", nil)
	if got := f.getAgent("agent-1"); got.GetDesiredState() != "deleted" {
		t.Errorf("of a sandbox to be deleted: %v", got)
	}
}

func TestAgentDryRunRecordsNothing(t *testing.T) {
	f := newAgents(t)
	req := &agboxv1.CreateAgentRequest{Name: "bot", DryRun: true, Spec: &agboxv1.AgentSpec{SandboxId: "work", Command: []string{"bot"}, DesiredState: "stopped"}}
	resp, err := f.agents.CreateAgent(t.Context(), req)
	f.must(err)
	if h := resp.GetAgent(); h.GetName() != "bot" || h.GetSandboxId() != "boxx" || h.GetState() != agentPending || h.GetDesiredState() != "stopped" {
		t.Errorf("got %v", h)
	}
	if all := f.store.Agents(anyAgent); len(all) != 0 {
		t.Errorf("recorded %v", all)
	}
	_, err = f.createAgent("agent-1", "bot")
	f.must(err)
	_, err = f.agents.CreateAgent(t.Context(), req)
	refused(t, err, codes.AlreadyExists, "AGENT_NAME_ALREADY_EXISTS", "agent name bot already exists", nil)
}

func TestAgentsAreListedWithoutSpecs(t *testing.T) {
	f := newAgents(t)
	f.create("other", ready)
	for id, sandbox := range map[string]string{"agent-a": "work", "agent-b": "work", "agent-c": "other"} {
		_, err := f.createAgent(id, "", func(s *agboxv1.AgentSpec) { s.SandboxId, s.Labels = sandbox, map[string]string{"id": id} })
		f.must(err)
	}
	for want, req := range map[string]*agboxv1.ListAgentsRequest{
		"agent-a agent-b agent-c": {}, "agent-a agent-b": {SandboxId: "boxx"}, "agent-b": {LabelSelector: map[string]string{"id": "agent-b"}}, "": {SandboxId: "nope"},
	} {
		resp, err := f.agents.ListAgents(t.Context(), req)
		f.must(err)
		var ids []string
		for _, h := range resp.GetAgents() {
			ids = append(ids, h.GetAgentId())
			if h.GetSpec() != nil || h.GetLabels()["id"] != h.GetAgentId() {
				t.Errorf("got %v", h)
			}
		}
		if slices.Sort(ids); strings.Join(ids, " ") != want {
			t.Errorf("got %q, want %q", ids, want)
		}
	}
}

func TestAgentHandleShowsStateAndActivity(t *testing.T) {
	line, unverified := "", true
	f := newAgents(t, func(d *server.Deps) {
		d.AgentStatus = func(string) (string, bool) { return line, unverified }
	})
	_, err := f.createAgent("agent-1", "", func(s *agboxv1.AgentSpec) { s.InitialPrompt = "begin" })
	f.must(err)
	f.startAgent("agent-1")
	if h := f.getAgent("agent-1"); h.GetState() != agentIdle || h.GetStatus() != "RUNNING" || h.GetActivity() != "IDLE" || !h.GetUnverified() ||
		h.GetQueuedPrompts() != 1 || h.GetIncarnation() != 1 || h.GetRung() != agboxv1.AgentRung_AGENT_RUNG_COLD || h.GetAttempts() != 1 {
		t.Errorf("idle: %v", h)
	}
	f.claim("agent-1")
	unverified = false
	if h := f.getAgent("agent-1"); h.GetState() != agentBusy || h.GetActivity() != "BUSY" || h.GetUnverified() || h.GetPromptId() == "" || h.GetQueuedPrompts() != 0 {
		t.Errorf("busy: %v", h)
	}
	f.trigger("agent-1", agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_CRASHED, "exit code 3")
	line = "starts again in 5 s"
	if h := f.getAgent("agent-1"); h.GetState() != agentFailed || h.GetStatus() != "FAILED" || h.GetActivity() != "" ||
		h.GetStatusMessage() != "exit code 3; starts again in 5 s" || h.GetQueuedPrompts() != 1 {
		t.Errorf("failed: %v", h)
	}
}

func TestOnlyAnAgentWithoutAProcessIsParked(t *testing.T) {
	f := newAgents(t)
	_, err := f.createAgent("agent-1", "")
	f.must(err)
	f.startAgent("agent-1")
	_, err = f.store.StartDrain(t.Context(), store.DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_PARK})
	f.must(err)
	if h := f.getAgent("agent-1"); h.GetParked() {
		t.Errorf("it lives: %v", h)
	}
	f.trigger("agent-1", agboxv1.AgentTrigger_AGENT_TRIGGER_DRAIN_PARKED, "")
	if h := f.getAgent("agent-1"); !h.GetParked() || h.GetState() != agboxv1.AgentState_AGENT_STATE_STOPPED {
		t.Errorf("it is down: %v", h)
	}
}

func TestAgentRequestsAreRecordedAndRefused(t *testing.T) {
	f := newAgents(t)
	ctx := t.Context()
	calls := map[string]func(id string) error{
		"start": func(id string) error {
			_, err := f.agents.StartAgent(ctx, &agboxv1.StartAgentRequest{AgentId: id})
			return err
		},
		"stop": func(id string) error {
			_, err := f.agents.StopAgent(ctx, &agboxv1.StopAgentRequest{AgentId: id})
			return err
		},
		"delete": func(id string) error {
			_, err := f.agents.DeleteAgent(ctx, &agboxv1.DeleteAgentRequest{AgentId: id})
			return err
		},
		"move": func(id string) error {
			_, err := f.agents.MoveAgent(ctx, &agboxv1.MoveAgentRequest{AgentId: id, SandboxId: "work"})
			return err
		},
		"interrupt": func(id string) error {
			_, err := f.agents.InterruptAgent(ctx, &agboxv1.InterruptAgentRequest{AgentId: id})
			return err
		},
		"get": func(id string) error {
			_, err := f.agents.GetAgent(ctx, &agboxv1.GetAgentRequest{AgentId: id})
			return err
		},
		"prompt": func(id string) error {
			_, err := f.agents.PromptAgent(ctx, &agboxv1.PromptAgentRequest{AgentId: id, Text: "hi"})
			return err
		},
		"conversation": func(id string) error {
			_, err := f.agents.GetAgentConversation(ctx, &agboxv1.GetAgentConversationRequest{AgentId: id})
			return err
		},
		"transitions": func(id string) error {
			_, err := f.agents.ListAgentTransitions(ctx, &agboxv1.ListAgentTransitionsRequest{AgentId: id})
			return err
		},
		"events": func(id string) error {
			s, err := f.agents.SubscribeAgentEvents(ctx, &agboxv1.SubscribeAgentEventsRequest{AgentId: id})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			refused(t, call("nope"), codes.NotFound, "AGENT_NOT_FOUND", "agent nope was not found", map[string]string{"agent_id": "nope"})
			refused(t, call(""), codes.InvalidArgument, "INVALID_SPEC", "agent_id is required", map[string]string{"field": "agent_id"})
		})
	}
	_, err := f.createAgent("agent-1", "")
	f.must(err)
	refused(t, calls["interrupt"]("agent-1"), codes.FailedPrecondition, "AGENT_INVALID_STATE", "agent agent-1 is not busy", nil)
	for verb, want := range map[string]string{"stop": "stopped", "start": "running", "delete": "deleted"} {
		if verb == "delete" {
			continue
		}
		f.must(calls[verb]("agent-1"))
		if h := f.getAgent("agent-1"); h.GetDesiredState() != want {
			t.Errorf("%s: %v", verb, h)
		}
	}
	f.must(calls["delete"]("agent-1"))
	f.must(calls["delete"]("agent-1"))
	refused(t, calls["start"]("agent-1"), codes.FailedPrecondition, "AGENT_INVALID_STATE", "agent agent-1 is being deleted", nil)
	refused(t, calls["move"]("agent-1"), codes.FailedPrecondition, "AGENT_INVALID_STATE", "agent agent-1 is being deleted", nil)
	refused(t, calls["prompt"]("agent-1"), codes.FailedPrecondition, "AGENT_INVALID_STATE", "agent agent-1 is being deleted", nil)
}

func TestPromptsAreQueuedOnce(t *testing.T) {
	f := newAgents(t)
	_, err := f.createAgent("agent-1", "")
	f.must(err)
	for range 2 {
		resp, err := f.prompt("agent-1", "prompt-1", "hi")
		if err != nil || resp.GetPromptId() != "prompt-1" || resp.GetAhead() != 0 {
			t.Errorf("got %v, %v", resp, err)
		}
	}
	_, err = f.prompt("agent-1", "prompt-1", "ho")
	refused(t, err, codes.AlreadyExists, "PROMPT_ID_ALREADY_EXISTS", "prompt_id prompt-1 already exists", nil)
	resp, err := f.prompt("agent-1", "", "ho")
	if err != nil || len(resp.GetPromptId()) != 36 || resp.GetAhead() != 1 {
		t.Errorf("got %v, %v", resp, err)
	}
	_, err = f.prompt("agent-1", "", "")
	refused(t, err, codes.InvalidArgument, "INVALID_SPEC", "text is required", nil)
	for range 998 {
		_, err = f.prompt("agent-1", "", "more")
		f.must(err)
	}
	_, err = f.prompt("agent-1", "", "too much")
	refused(t, err, codes.ResourceExhausted, "AGENT_PROMPTS_FULL", "agent agent-1 has 1000 prompts queued", nil)
}

func TestTransitionsArePaged(t *testing.T) {
	f := newAgents(t)
	_, err := f.createAgent("agent-1", "")
	f.must(err)
	for range 2 {
		f.startAgent("agent-1")
		f.trigger("agent-1", agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_CRASHED, "exit code 3")
	}
	resp, err := f.agents.ListAgentTransitions(t.Context(), &agboxv1.ListAgentTransitionsRequest{AgentId: "agent-1", After: 1, Limit: 2})
	f.must(err)
	got := resp.GetTransitions()
	if len(got) != 2 || got[0].GetNumber() != 2 || got[1].GetReason() != "exit code 3" || got[1].GetTo() != agentFailed || got[1].GetIncarnation() != 1 {
		t.Errorf("got %v", got)
	}
	resp, err = f.agents.ListAgentTransitions(t.Context(), &agboxv1.ListAgentTransitionsRequest{AgentId: "agent-1", Limit: 5000})
	if err != nil || len(resp.GetTransitions()) != 6 {
		t.Errorf("got %v, %v", resp, err)
	}
}

func TestFormatsAreThoseThatAreDecoded(t *testing.T) {
	for _, format := range dialect.Formats() {
		if errs := validate.Agent(&agboxv1.AgentSpec{SandboxId: "x", Command: []string{"x"}, Format: format}); len(errs) > 0 {
			t.Errorf("%s: %v", format, errs)
		}
		if !strings.Contains(validate.Agent(&agboxv1.AgentSpec{SandboxId: "x", Command: []string{"x"}, Format: "?"}).Error(), `"`+format+`"`) {
			t.Errorf("%s is not offered", format)
		}
	}
}

func TestAgentsDuringARebuild(t *testing.T) {
	var why string
	f := newAgents(t, func(d *server.Deps) { d.Rebuilding = func() string { return why } })
	_, err := f.createAgent("agent-1", "")
	f.must(err)
	why = "the records are being rebuilt"
	_, err = f.createAgent("agent-2", "")
	refused(t, err, codes.Unavailable, "UNAVAILABLE", why, nil)
	_, err = f.agents.GetAgent(t.Context(), &agboxv1.GetAgentRequest{AgentId: "nope"})
	refused(t, err, codes.Unavailable, "UNAVAILABLE", why, nil)
	if h := f.getAgent("agent-1"); h.GetState() != agentPending {
		t.Errorf("got %v", h)
	}
}
