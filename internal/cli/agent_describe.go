package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

func (a *app) agentDescribeCommand() *cobra.Command {
	var o *output
	cmd := &cobra.Command{
		Use: "describe NAME", Short: "Show everything about one agent", ValidArgsFunction: a.agentKind().first,
		Long:    "Show one agent with its newest changes of state and events. Values of envs are left out, except with -o.",
		Example: "  agbox agent describe coder",
		Args:    one(a.agentKind().one),
		RunE: withOne(a.agentKind().full, func(ctx context.Context, one *agboxv1.AgentHandle) error {
			if o.given() {
				return a.describeAgentAs(ctx, one, o)
			}
			return a.describeAgent(ctx, one)
		}),
	}
	o = outputFlag(cmd, "json", "yaml")
	return cmd
}

func (a *app) describeAgentAs(ctx context.Context, one *agboxv1.AgentHandle, o *output) error {
	a.warnEngine(ctx)
	doc, err := a.agentKind().document(one)
	if err != nil {
		return err
	}
	d := description{kindDocument: doc}
	transitions, err := a.newestTransitions(ctx, one)
	if err == nil {
		d.Transitions, err = rawList(transitions)
	}
	if err != nil {
		return err
	}
	events, err := a.newestAgentEvents(ctx, one)
	if err == nil {
		d.Events, err = rawList(events)
	}
	if err != nil {
		return err
	}
	return a.printAs(d, o)
}

func (a *app) describeAgent(ctx context.Context, one *agboxv1.AgentHandle) error {
	all, err := a.live(ctx)
	if err != nil {
		return err
	}
	a.warnEngine(ctx)
	transitions, err := a.newestTransitions(ctx, one)
	if err != nil {
		return err
	}
	a.describeAgentFacts(one, sandboxNames(all), transitions)
	a.agentSpecFacts(validate.AgentDefaults(one.GetSpec()))
	a.agentQueue(one)
	if len(transitions) > 0 {
		fmt.Fprintln(a.Out, "Transitions:")
		a.printTransitions(transitions, "  ", false)
	}
	events, err := a.newestAgentEvents(ctx, one)
	if err != nil || len(events) == 0 {
		return err
	}
	fmt.Fprintln(a.Out, "Events:")
	for _, e := range events {
		fmt.Fprintln(a.Out, clip("  "+agentEventLine(e), tableWidth))
	}
	return nil
}

func (a *app) describeAgentFacts(one *agboxv1.AgentHandle, sandboxes map[string]string, transitions []*agboxv1.AgentTransition) {
	sandbox := cmp.Or(namedSandbox(one.GetSandboxId(), sandboxes), one.GetSandboxId()+" "+noSandbox)
	state := agentState(one) + textIf(one.GetUnverified(), ", not observed since the daemon started")
	a.fact("Name", one.GetName())
	a.fact("ID", one.GetAgentId())
	a.fact("Sandbox", sandbox)
	a.factIf("Moves to", movesTo(one, sandboxes))
	a.fact("State", state)
	a.fact("Since", when(one.GetStateChangedAt()))
	a.fact("Wanted", one.GetDesiredState())
	a.factIf("Status", termsafe.Line(one.GetStatusMessage()))
	if n := len(transitions); n > 0 && one.GetStatus() != "RUNNING" {
		a.factIf("Reason", termsafe.Line(transitions[n-1].GetReason()))
	}
	a.factIf("Attention", textIf(one.GetNeedsAttention(),
		fmt.Sprintf("it is not started again automatically; \"agbox agent start %s\" starts it", agentName(one))))
	a.factIf("Parked", textIf(one.GetParked(), "it restarts automatically"))
	a.factIf("Work", given("", one.GetSaved(), " when it was ended"))
	a.factIf("Session", sessionText(one.GetSession()))
	a.factIf("Prompt", termsafe.Line(one.GetPromptId()))
	a.fact("Queue", prompts(int(one.GetQueuedPrompts())))
	if one.GetIncarnation() > 0 {
		a.fact("Exec", agentExec(one))
		a.factIf("Past", rungs[one.GetRung()])
	}
	a.fact("Restarts", restartsText(one))
	a.fact("Created", when(one.GetCreatedAt()))
}

// sessionText describes the session of an agent's program that is saved outside its sandbox.
func sessionText(s *agboxv1.AgentSession) string {
	if s == nil {
		return ""
	}
	text := "nothing to save at its session_paths"
	if s.GetSavedAt() != nil {
		text = fmt.Sprintf("saved %s: %s, %s", when(s.GetSavedAt()), plural(int(s.GetFiles()), "file"), bytesText(s.GetBytes()))
	} else if s.GetProblem() != "" {
		text = "never saved"
	}
	return text + given("; the last attempt failed: ", termsafe.Line(s.GetProblem()), "")
}

// agentExec returns the exec ID of the agent's newest process.
func agentExec(one *agboxv1.AgentHandle) string {
	return fmt.Sprintf("%s.%d", one.GetAgentId(), one.GetIncarnation())
}

// namedSandbox is "web (ID)", or "" for a sandbox that does not exist.
func namedSandbox(id string, sandboxes map[string]string) string {
	if name := sandboxes[id]; name != id && name != "" {
		return fmt.Sprintf("%s (%s)", name, id)
	}
	return sandboxes[id]
}

// movesTo describes the sandbox to which an agent moves, or returns "".
func movesTo(one *agboxv1.AgentHandle, sandboxes map[string]string) string {
	to := one.GetMovesTo()
	if to == "" {
		return ""
	}
	return cmp.Or(namedSandbox(to, sandboxes), fmt.Sprintf("the next sandbox named %s; \"agbox agent move %s SANDBOX\" chooses another", to, agentName(one)))
}

// rungs says how a process got the conversation.
var rungs = map[agboxv1.AgentRung]string{
	agboxv1.AgentRung_AGENT_RUNG_ADOPTED: "adopted: the process survived a restart of the daemon",
	agboxv1.AgentRung_AGENT_RUNG_NATIVE:  "resumed by the program itself",
	agboxv1.AgentRung_AGENT_RUNG_CONTEXT: "given with its next prompt",
	agboxv1.AgentRung_AGENT_RUNG_COLD:    "none",
}

func (a *app) agentSpecFacts(spec *agboxv1.AgentSpec) {
	a.fact("Command", termsafe.Line(strings.Join(spec.GetCommand(), " ")))
	a.fact("Format", spec.GetFormat())
	a.factIf("Directory", termsafe.Line(spec.GetWorkingDir()))
	a.fact("Ready", fmt.Sprintf("by %s, within %s", spec.GetReady(), span(spec.GetStartTimeout().AsDuration())))
	a.fact("Restart", spec.GetRestartPolicy())
	a.fact("Interrupted", interruptedText(spec.GetOnInterrupted()))
	a.fact("Context", contextText(spec.GetContext()))
	a.factIf("Initial", clip(termsafe.Line(spec.GetInitialPrompt()), toolWidth))
	a.factIf("Nudge", clip(termsafe.Line(spec.GetNudge()), toolWidth))
	a.factIf("Save", termsafe.Line(strings.Join(spec.GetSaveCommand(), " ")))
	a.fact("Sessions", termsafe.Line(strings.Join(spec.GetSessionPaths(), " ")))
	a.fact("Labels", termsafe.Line(strings.Join(pairs(spec.GetLabels()), ", ")))
	a.fact("Envs", strings.Join(slices.Sorted(maps.Keys(spec.GetEnvs())), ", "))
}

// interruptedText describes on_interrupted.
func interruptedText(policy string) string {
	if policy == "hold" {
		return "a cut-off prompt is held"
	}
	return "a cut-off prompt is given again; after two crashes it is held"
}

func contextText(c *agboxv1.AgentContextPolicy) string {
	return fmt.Sprintf("%s, at most %d turns and %d characters", c.GetMode(), c.GetMaxTurns(), c.GetMaxCharacters()) +
		textIf(c.GetModelWindowTokens() > 0, fmt.Sprintf(", for a window of %d tokens", c.GetModelWindowTokens())) +
		given(", summary by ", termsafe.Line(strings.Join(c.GetSummaryCommand(), " ")), "")
}

// newestTransitions returns the newest changes of state.
func (a *app) newestTransitions(ctx context.Context, one *agboxv1.AgentHandle) ([]*agboxv1.AgentTransition, error) {
	all, err := a.conn().AgentTransitions(ctx, one.GetAgentId(), 0)
	return all[max(len(all)-recentEvents, 0):], err
}

// agentQueue shows the prompts that wait or are held.
func (a *app) agentQueue(one *agboxv1.AgentHandle) {
	if len(one.GetQueue()) == 0 {
		return
	}
	fmt.Fprintln(a.Out, "Queue:")
	now := time.Now()
	t := newTable(a.Out, false)
	t.add("  AGE", "PROMPT", "STATE", "TEXT")
	for _, p := range one.GetQueue() {
		state := "waits"
		switch {
		case p.GetHeld():
			state = "held"
		case p.GetGiven() > 0:
			state = "again"
		}
		t.add("  "+age(p.GetQueuedAt().AsTime(), now), termsafe.Line(p.GetPromptId()), state, termsafe.Line(p.GetText()))
	}
	t.write(a.Out)
	for _, p := range one.GetQueue() {
		if p.GetHeld() {
			fmt.Fprintf(a.Out, "  %s is held: %s\n", termsafe.Line(p.GetPromptId()), termsafe.Line(p.GetHeldReason()))
		}
	}
	if one.GetHeldPrompts() > 0 {
		fmt.Fprintf(a.Out, "  \"agbox agent redeliver %s\" gives a held prompt again, \"agbox agent withdraw\" removes it\n", agentName(one))
	}
}

// newestAgentEvents returns the newest events except changes of state.
func (a *app) newestAgentEvents(ctx context.Context, one *agboxv1.AgentHandle) (newest []*agboxv1.AgentEvent, err error) {
	err = a.eachStored(ctx, one, func(e *agboxv1.AgentEvent) error {
		if e.GetEventType() != agboxv1.AgentEventType_AGENT_STATE_CHANGED {
			newest = append(newest, e)
			newest = newest[max(len(newest)-recentEvents, 0):]
		}
		return nil
	})
	return newest, err
}

// eachStored calls see with the events up to the last_event_sequence of one.
func (a *app) eachStored(ctx context.Context, one *agboxv1.AgentHandle, see func(*agboxv1.AgentEvent) error) error {
	if one.GetLastEventSequence() == 0 {
		return nil
	}
	return upTo(one.GetLastEventSequence(), a.conn().AgentEvents(ctx, one.GetAgentId(), client.AgentEventOptions{}), see)
}
