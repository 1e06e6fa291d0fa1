package dialect

import (
	"cmp"
	"encoding/json"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/dialect/acp"
)

// maxBlocks bounds the blocks read from one line: each yields at most four outputs.
const maxBlocks = MaxOutputs/4 - 2

// claudeEvent is a fragment of a message in progress, as the model's API streams it.
type claudeEvent struct {
	Type    string        `json:"type"`
	Message claudeMessage `json:"message"`
	Delta   struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
	} `json:"delta"`
}

// claudeStream drafts streamed text. The assistant line that follows has the whole text, and the input of tools.
func (e *emitter) claudeStream(ev *claudeEvent) {
	switch ev.Type {
	case "message_start":
		e.begin(ev.Message.ID)
	case "content_block_start", "content_block_stop":
		e.endStream()
	case "content_block_delta":
		switch ev.Delta.Type {
		case "text_delta":
			e.draft(kindText, ev.Delta.Text)
		case "thinking_delta":
			e.draft(kindReasoning, ev.Delta.Thinking)
		}
	}
}

// claudeResult ends the turn, or reports that the session to resume is lost: then no turn was started.
func (e *emitter) claudeResult(l *claudeLine) {
	problem := claudeProblem(l)
	if l.IsError && !e.s.Named && strings.Contains(strings.ToLower(problem), claudeNoSession) {
		e.reset(problem)
		return
	}
	failed := l.IsError || strings.HasPrefix(l.Subtype, "error")
	if !e.s.Spoke && !failed {
		if text := compact(l.Result); text != "" {
			e.addPart(&agboxv1.AgentMessagePart{Kind: kindText, Text: text})
		}
	}
	switch {
	case failed && e.s.Interrupted:
		e.result(outcomeInterrupted, "")
	case failed && (l.Subtype == "success" || l.Subtype == "error_during_execution" || l.Subtype == ""):
		e.result(outcomeError, problem)
	case failed:
		e.result(strings.TrimPrefix(l.Subtype, "error_"), problem)
	default:
		e.result(outcomeEndTurn, "")
	}
}

func claudeProblem(l *claudeLine) string {
	return cmp.Or(strings.Join(l.Errors, "; "), compact(l.Error), compact(l.Result), l.Subtype)
}

// claudeBlocks decodes content, which is a string or a list of blocks.
func claudeBlocks(raw json.RawMessage) []claudeBlock {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []claudeBlock{{Type: "text", Text: text}}
	}
	var blocks []claudeBlock
	if !acp.Decode(raw, &blocks) {
		return nil
	}
	return blocks[:min(len(blocks), maxBlocks)]
}

// claudeOutput returns the text of a tool's result; of other blocks only the type.
func claudeOutput(raw json.RawMessage) string {
	var lines []string
	for _, b := range claudeBlocks(raw) {
		if b.Type == "text" {
			lines = append(lines, b.Text)
		} else if b.Type != "" {
			lines = append(lines, "["+short(b.Type, maxName)+"]")
		}
	}
	return strings.Join(lines, "\n")
}

// validSessionID reports whether a session's ID is safe as an argument of a command line and not a flag.
func validSessionID(id string) bool {
	return id != "" && len(id) <= maxID && id[0] != '-' && !strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c >= 0x7f })
}
