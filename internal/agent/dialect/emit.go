package dialect

import (
	"cmp"
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

// emitter collects the outputs of one line, and enforces the rules for messages and parts.
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

// begin opens a message with the program's ID foreign, unless one with that ID is open; an empty foreign matches any.
func (e *emitter) begin(foreign string) {
	foreign = short(foreign, maxID)
	if e.s.Open && (foreign == "" || foreign == e.s.Foreign) {
		return
	}
	e.complete()
	e.s.Messages++
	e.s.Open, e.s.Foreign, e.s.Parts, e.s.Grown, e.s.LastText = true, foreign, 0, 0, false
	e.message(agboxv1.AgentEventType_AGENT_MESSAGE_CREATED)
}

func (e *emitter) complete() {
	if !e.s.Open {
		return
	}
	e.endStream()
	e.s.Open, e.s.Foreign, e.s.Parts, e.s.Grown, e.s.LastText = false, "", 0, 0, false
	e.s.Drafts, e.s.Tools = nil, nil
	e.message(agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED)
}

func (e *emitter) message(typ agboxv1.AgentEventType) {
	e.event(&agboxv1.AgentEvent{
		EventType: typ,
		Details:   &agboxv1.AgentEvent_Message{Message: &agboxv1.AgentMessage{MessageId: e.messageID(), Role: roleAssistant}},
	})
}

// ensureRoom makes room for one more part: it completes a full message and opens another one.
func (e *emitter) ensureRoom() {
	if e.s.Parts >= maxPart {
		foreign := e.s.Foreign
		e.complete()
		e.begin(foreign)
	}
}

// addPart ends the growing text and appends a complete part to the open message. It returns the part's number.
func (e *emitter) addPart(p *agboxv1.AgentMessagePart) uint32 {
	e.begin("")
	e.endStream()
	return e.appendPart(p)
}

// appendPart appends a complete part without ending the growing text.
func (e *emitter) appendPart(p *agboxv1.AgentMessagePart) uint32 {
	e.ensureRoom()
	p.Part = e.s.Parts
	e.part(p)
	return p.Part
}

// part emits one snapshot of a numbered part, within the bounds.
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
	outcome = cmp.Or(short(outcome, maxName), outcomeEndTurn)
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

// reset reports that the program's session is lost.
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
