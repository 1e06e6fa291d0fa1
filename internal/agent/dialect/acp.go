package dialect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/agbox/agbox/internal/agent/dialect/acp"
)

// acp handles a line of an ACP agent: a response to a request of the client, identified by its ID, or a notification. The
// client answers the agent's requests; they are ignored here.
func (e *emitter) acp(line []byte) {
	var l acp.Message
	if !parse(bytes.TrimSpace(line), &l) {
		return
	}
	switch l.Method {
	case "session/update":
		// A loaded session replays its history, which is recorded already.
		var params struct {
			Update acpUpdate `json:"update"`
		}
		if e.s.Ready && parse(l.Params, &params) {
			e.acpUpdate(&params.Update)
		}
	case "":
		if kind, ok := acp.KindOf(l.ID); ok {
			e.acpAnswer(kind, &l)
		}
	}
}

func (e *emitter) acpAnswer(kind acp.Kind, l *acp.Message) {
	switch kind {
	case acp.Initialize, acp.InitializeToLoad:
		other := acp.OtherVersion(l.Result.Version)
		e.s.CanLoad = l.Error == nil && other == "" && l.Result.Capabilities.LoadSession
		if kind == acp.InitializeToLoad && !e.s.CanLoad {
			e.reset(cmp.Or(other, "the agent can't load sessions"))
		}
	case acp.LoadSession:
		if l.Error != nil {
			e.reset("the session could not be loaded: " + l.Error.Error())
			return
		}
		e.ready()
	case acp.NewSession:
		if l.Error == nil && l.Result.SessionID != "" {
			e.acpSession(l.Result.SessionID)
		}
	case acp.Prompt:
		e.acpResult(l)
	}
}

// acpSession records the ID of a new session. It is not reported before the session has content: one that never got a prompt
// did not get the conversation's context either.
func (e *emitter) acpSession(id string) {
	if e.s.CanLoad && validSessionID(id) {
		e.s.Session = id
	}
	e.ready()
}

// acpNamed reports the ID of a new session, once, if the agent can load sessions.
func (e *emitter) acpNamed() {
	if e.s.Session != "" && !e.s.Named {
		e.s.Named = true
		e.add(Output{SessionID: e.s.Session})
	}
}

func (e *emitter) acpResult(l *acp.Message) {
	if l.Error == nil {
		e.acpNamed()
	}
	switch {
	case l.Error != nil:
		e.result(outcomeError, l.Error.Error())
	case l.Result.StopReason == "cancelled":
		e.result(outcomeInterrupted, "")
	default:
		e.result(l.Result.StopReason, "")
	}
}

// acpContent is a block of content. Only the type and URI of blocks other than text are kept.
type acpContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
	URI  string `json:"uri"`
}

func (c *acpContent) text() string {
	switch {
	case c.Type == "text" || c.Type == "":
		return c.Text
	case c.URI != "":
		return "[" + short(c.Type, maxName) + " " + short(c.URI, maxName) + "]"
	default:
		return "[" + short(c.Type, maxName) + "]"
	}
}

// acpToolContent is the output of a tool call: content, the path of a diff, or a terminal.
type acpToolContent struct {
	Type    string     `json:"type"`
	Content acpContent `json:"content"`
	Path    string     `json:"path"`
}

func acpOutput(raw json.RawMessage) string {
	var list []acpToolContent
	if !acp.Decode(raw, &list) {
		return ""
	}
	var lines []string
	for _, c := range list[:min(len(list), maxBlocks)] {
		switch c.Type {
		case "content":
			lines = append(lines, c.Content.text())
		case "diff":
			lines = append(lines, "[changed "+short(c.Path, 1<<10)+"]")
		}
	}
	return strings.Join(lines, "\n")
}
