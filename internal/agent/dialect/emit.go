package dialect

import (
	"strconv"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	kindText       = "text"
	kindReasoning  = "reasoning"
	kindToolCall   = "tool_call"
	kindToolResult = "tool_result"

	roleAssistant = "assistant"

	outcomeEndTurn     = "end_turn"
	outcomeInterrupted = "interrupted"
	outcomeError       = "error"
)

// emitter collects what one line says, and keeps the rules on messages and parts.
type emitter struct {
	s   *state
	out []Output
}

func (e *emitter) add(o Output) {
	if len(e.out) < MaxOutputs {
		e.out = append(e.out, o)
	}
}

func (e *emitter) event(ev *agboxv1.AgentEvent) { e.add(Output{Event: ev}) }

func (e *emitter) messageID() string { return "m." + strconv.FormatUint(e.s.Messages, 10) }

// begin makes sure that a message is open, and that it is the program's own foreign if that is not empty.
func (e *emitter) begin(foreign string) {
	foreign = short(foreign, maxID)
	if e.s.Open && (foreign == "" || foreign == e.s.Foreign) {
		return
	}
	e.complete()
	e.s.Messages++
	e.s.Open, e.s.Foreign, e.s.Parts, e.s.Grown, e.s.LastText = true, foreign, 0, 0, false
	e.event(&agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_MESSAGE_CREATED,
		Details: &agboxv1.AgentEvent_Message{Message: &agboxv1.AgentMessage{
			MessageId: e.messageID(), Role: roleAssistant,
		}},
	})
}

func (e *emitter) complete() {
	if !e.s.Open {
		return
	}
	e.endStream()
	e.s.Open, e.s.Foreign, e.s.Parts, e.s.Grown, e.s.LastText = false, "", 0, 0, false
	e.s.Drafts, e.s.Tools = nil, nil
	e.event(&agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED,
		Details: &agboxv1.AgentEvent_Message{Message: &agboxv1.AgentMessage{
			MessageId: e.messageID(), Role: roleAssistant,
		}},
	})
}

// room makes sure that the open message takes one more part: a full one is completed, and the next goes on.
func (e *emitter) room() {
	if e.s.Parts >= maxPart {
		foreign := e.s.Foreign
		e.complete()
		e.begin(foreign)
	}
}

// whole tells a part of which nothing is to come, as the next part of the open message, and returns its number.
func (e *emitter) whole(p *agboxv1.AgentMessagePart) uint32 {
	e.begin("")
	e.endStream()
	return e.aside(p)
}

// aside is whole for what has nothing to do with the text that grows, and leaves it growing.
func (e *emitter) aside(p *agboxv1.AgentMessagePart) uint32 {
	e.room()
	p.Part = e.s.Parts
	e.part(p)
	return p.Part
}

// part tells one snapshot of a numbered part, within the bounds.
func (e *emitter) part(p *agboxv1.AgentMessagePart) {
	limit := MaxText
	if p.Kind == kindToolResult {
		limit = MaxToolOutput
	}
	var missing bool
	p.MessageId = e.messageID()
	p.Text, missing = cut(p.Text, limit)
	p.Cut = p.Cut || missing
	p.ToolName, p.ToolCallId = short(p.ToolName, maxName), short(p.ToolCallId, maxID)
	e.s.Parts = max(e.s.Parts, p.Part+1)
	e.s.LastText = p.Kind == kindText
	e.s.Spoke = e.s.Spoke || p.Kind == kindText && p.Text != ""
	e.event(&agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_MESSAGE_PART_UPDATED,
		Details:   &agboxv1.AgentEvent_Part{Part: p},
	})
}

func (e *emitter) ready() {
	e.s.Ready = true
	e.add(Output{Ready: true})
}

// result ends the turn.
func (e *emitter) result(outcome, problem string) {
	e.complete()
	outcome = short(outcome, maxName)
	if outcome == "" {
		outcome = outcomeEndTurn
	}
	e.add(Output{
		Ready: !e.s.Ready, Result: true,
		Event: &agboxv1.AgentEvent{
			EventType: agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED,
			Details: &agboxv1.AgentEvent_Result{Result: &agboxv1.AgentResult{
				Outcome: outcome, Error: short(problem, 4<<10),
			}},
		},
	})
	e.s.Ready, e.s.Spoke, e.s.Begun, e.s.Interrupted = true, false, false, false
}

// reset says that the program's own past is gone.
func (e *emitter) reset(reason string) {
	if e.s.Lost {
		return
	}
	e.s.Lost = true
	e.add(Output{SessionLost: true, Event: &agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_RESET,
		Details: &agboxv1.AgentEvent_Truncation{Truncation: &agboxv1.AgentTruncation{
			Reason: short(reason, 1<<10),
		}},
	}})
}

func (e *emitter) checkpoint(text string) {
	text, _ = cut(text, MaxCheckpoint)
	e.event(&agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_CHECKPOINT,
		Details:   &agboxv1.AgentEvent_Checkpoint{Checkpoint: &agboxv1.AgentCheckpoint{Text: text}},
	})
}
