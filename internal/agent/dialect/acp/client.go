package acp

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
)

// Bounds of what the client buffers for an agent that does not read.
const (
	// MaxLine is the longest line of the agent that the client handles; longer ones are only logged.
	MaxLine = 4 << 20
	// maxQueue is how many prompts may be queued. More are a bug of the daemon, which sends one at a time, and a nudge.
	maxQueue = 64
)

// ErrSession says that there is no session: the agent can't load the requested one, or refused to create one.
var ErrSession = errors.New("no session")

// Client implements the protocol without I/O: lines in, lines out. It is not safe for concurrent use.
type Client struct {
	o       Options
	session string
	// next is the number of the next prompt; 0 before there is a session.
	next int
	// busy: a prompt is unanswered. queue holds prompts until there is a session and no unanswered prompt.
	busy  bool
	queue []string
	// stopping: the turn was cancelled, and its further permission requests are refused.
	stopping bool
}

// New returns a client that has sent nothing yet.
func New(o Options) *Client { return &Client{o: o} }

// Start returns the first request to the agent.
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

// FromInbox handles one line of the inbox and returns the lines for the agent. An unknown line is ignored.
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

// FromAgent handles one line of the agent and returns the lines for the agent. ErrSession is final.
func (c *Client) FromAgent(line []byte) ([]byte, error) {
	var l Message
	if !Decode(line, &l) {
		return nil, nil
	}
	kind, ok := KindOf(l.ID)
	switch {
	case l.Method != "" && l.asks():
		return l.reply(!c.stopping), nil
	case l.Method != "", !ok:
		return nil, nil
	}
	return c.answered(kind, &l)
}

func (c *Client) answered(kind Kind, l *Message) ([]byte, error) {
	if l.Error != nil && kind != Prompt {
		return nil, fmt.Errorf("%w: %w", ErrSession, l.Error)
	}
	switch {
	case kind == Prompt:
		c.busy, c.stopping = false, false
		return c.prompt(), nil
	case c.next != 0:
		return nil, nil // there is a session already: a duplicate response
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
		return nil, fmt.Errorf("%w: the agent returned no session ID", ErrSession)
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

// prompt returns the request for the next prompt, if the agent is ready for one.
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

// Verb is the name of the shim's command that runs a client.
const Verb = "acp"

// Options describe the session that the client requests.
type Options struct {
	// Cwd is the session's working directory. The protocol requires an absolute path; the caller replaces an empty one.
	Cwd string
	// Load is the session to resume. Empty: a new one.
	Load string
}

// Args returns the arguments after Verb to run command under a client.
func (o Options) Args(command []string) []string {
	var args []string
	if o.Cwd != "" {
		args = append(args, "--cwd="+o.Cwd)
	}
	if o.Load != "" {
		args = append(args, "--load="+o.Load)
	}
	return append(append(args, "--"), command...)
}

// ParseArgs is the reverse of Args.
func ParseArgs(args []string) (o Options, command []string, err error) {
	f := flag.NewFlagSet(Verb, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.Cwd, "cwd", "", "")
	f.StringVar(&o.Load, "load", "", "")
	err = f.Parse(args)
	if command = f.Args(); err == nil && (len(command) == 0 || len(command) == len(args) || args[len(args)-len(command)-1] != "--") {
		err = errors.New("no command")
	}
	return o, command, err
}
