package acp

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Bounds of what the client keeps for an agent that does not read.
const (
	// MaxLine is the longest line of the agent that the client looks at; longer ones are only logged.
	MaxLine = 4 << 20
	// maxQueue is how many prompts may wait. More are a daemon's mistake: it gives one at a time, and a nudge.
	maxQueue = 64
)

// ErrSession says that the agent has given no session: it can't load the one asked for, or refused to make one.
var ErrSession = errors.New("no session")

// Client is the protocol without its pipes: lines in, lines out. It is not safe for concurrent use.
type Client struct {
	o       Options
	session string
	// next is the number of the next prompt; 0 before there is a session.
	next int
	// busy: a prompt has not been answered. queue waits for the session and for that answer.
	busy  bool
	queue []string
	// stopping: the turn was cancelled, and what it still asks for is not given.
	stopping bool
}

// New returns a client that has said nothing yet.
func New(o Options) *Client { return &Client{o: o} }

// Start returns what the agent is told first.
func (c *Client) Start() []byte {
	id := Initialize
	if c.o.Load != "" {
		id = InitializeToLoad
	}
	return request(int(id), "initialize", map[string]any{
		"protocolVersion": version,
		"clientCapabilities": map[string]any{
			"fs":       map[string]bool{"readTextFile": false, "writeTextFile": false},
			"terminal": false,
		},
		"clientInfo": map[string]string{"name": "agbox", "title": "agbox", "version": "1"},
	})
}

// FromInbox takes one line of the inbox and returns what the agent is told. A line that is none of ours is ignored.
func (c *Client) FromInbox(line []byte) []byte {
	var l struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil
	}
	switch {
	case l.Type == "prompt" && len(c.queue) < maxQueue:
		c.queue = append(c.queue, l.Text)
		return c.prompt()
	case l.Type == "interrupt" && c.busy:
		c.stopping = true
		return notification("session/cancel", map[string]string{"sessionId": c.session})
	}
	return nil
}

// FromAgent takes one line of the agent and returns what it is told. Errors: ErrSession, after which nothing can come of it.
func (c *Client) FromAgent(line []byte) ([]byte, error) {
	var l incoming
	if !decode(line, &l) {
		return nil, nil
	}
	switch {
	case l.Method != "" && l.asks():
		return l.reply(!c.stopping), nil
	case l.Method != "":
		return nil, nil
	}
	kind, ok := KindOf(l.ID)
	if !ok {
		return nil, nil
	}
	return c.answered(kind, &l)
}

func (c *Client) answered(kind Kind, l *incoming) ([]byte, error) {
	if l.Error != nil && kind != Prompt {
		return nil, fmt.Errorf("%w: %s", ErrSession, l.Error.Message)
	}
	switch {
	case kind == Prompt:
		c.busy, c.stopping = false, false
		return c.prompt(), nil
	case c.next != 0:
		return nil, nil // there is a session: an answer given twice
	case kind.initializes() && OtherVersion(l.Result.Version) != "":
		return nil, fmt.Errorf("%w: %s", ErrSession, OtherVersion(l.Result.Version))
	case kind == InitializeToLoad && !l.Result.Capabilities.LoadSession:
		return nil, fmt.Errorf("%w: the agent can't load sessions", ErrSession)
	case kind == Initialize:
		return request(int(NewSession), "session/new", c.sessionParams("")), nil
	case kind == InitializeToLoad:
		return request(int(LoadSession), "session/load", c.sessionParams(c.o.Load)), nil
	case kind == LoadSession:
		c.session = c.o.Load
	case l.Result.SessionID == "":
		return nil, fmt.Errorf("%w: the agent gave it no name", ErrSession)
	default:
		c.session = l.Result.SessionID
	}
	c.next = int(Prompt)
	return c.prompt(), nil
}

func (c *Client) sessionParams(load string) map[string]any {
	params := map[string]any{"cwd": c.o.Cwd, "mcpServers": []any{}}
	if load != "" {
		params["sessionId"] = load
	}
	return params
}

// prompt gives the agent the next prompt, if it can take one.
func (c *Client) prompt() []byte {
	if c.next == 0 || c.busy || len(c.queue) == 0 {
		return nil
	}
	text := c.queue[0]
	c.queue = c.queue[1:]
	c.busy = true
	id := c.next
	c.next++
	return request(id, "session/prompt", map[string]any{
		"sessionId": c.session,
		"prompt":    []any{map[string]string{"type": "text", "text": text}},
	})
}
