package acp

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// step is a line from one side, and words that the reply to the agent must contain; empty: no reply.
type step struct {
	from string // "agent" or "inbox"
	line string
	want string
}

const (
	initialized = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}`
	created     = `{"jsonrpc":"2.0","id":3,"result":{"sessionId":"s1"}}`
)

func TestConversations(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     Options
		steps []step
		err   error
	}{
		{"a new session, two prompts one after the other", Options{Cwd: "/w"}, []step{
			{"inbox", `{"type":"prompt","text":"one"}`, ""},
			{"agent", initialized, `"id":3|"session/new"|"cwd":"/w"|"mcpServers":[]`},
			{"agent", created, `"id":10|"session/prompt"|"sessionId":"s1"|"text":"one"`},
			{"inbox", `{"type":"prompt","text":"two"}`, ""},
			{"agent", `{"jsonrpc":"2.0","id":10,"result":{"stopReason":"end_turn"}}`, `"id":11|"text":"two"`},
			{"agent", `{"jsonrpc":"2.0","id":11,"error":{"message":"overloaded"}}`, ""},
			{"inbox", `{"type":"prompt","text":"three"}`, `"id":12|"text":"three"`},
		}, nil},
		{"a session is loaded", Options{Cwd: "/w", Load: "old"}, []step{
			{"agent", strings.Replace(initialized, `"id":1`, `"id":2`, 1), `"id":4|"session/load"|"sessionId":"old"`},
			{"agent", `{"jsonrpc":"2.0","method":"session/update","params":{}}`, ""},
			{"agent", `{"jsonrpc":"2.0","id":4,"result":null}`, ""},
			{"inbox", `{"type":"prompt","text":"one"}`, `"id":10|"sessionId":"old"`},
		}, nil},
		{"an agent that can't load", Options{Load: "old"}, []step{
			{"agent", `{"jsonrpc":"2.0","id":2,"result":{"agentCapabilities":{}}}`, ""},
		}, ErrSession},
		{"a session that is gone", Options{Load: "old"}, []step{
			{"agent", strings.Replace(initialized, `"id":1`, `"id":2`, 1), `"session/load"`},
			{"agent", `{"jsonrpc":"2.0","id":4,"error":{"code":-32002,"message":"not found"}}`, ""},
		}, ErrSession},
		{"an agent that does not say its version", Options{}, []step{
			{"agent", `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":null}}`, `"session/new"`},
		}, nil},
		{"another version", Options{}, []step{
			{"agent", strings.Replace(initialized, `"protocolVersion":1`, `"protocolVersion":2`, 1), ""},
		}, ErrSession},
		{"another version, to load", Options{Load: "old"}, []step{
			{"agent", strings.NewReplacer(`"id":1`, `"id":2`, `"protocolVersion":1`, `"protocolVersion":2`).Replace(initialized), ""},
		}, ErrSession},
		{"a session without a name", Options{}, []step{
			{"agent", initialized, `"session/new"`},
			{"agent", `{"jsonrpc":"2.0","id":3,"result":{}}`, ""},
		}, ErrSession},
		{"an interrupt, after which nothing is permitted until the turn has ended", Options{}, []step{
			{"inbox", `{"type":"interrupt"}`, ""},
			{"agent", initialized, `"session/new"`},
			{"agent", created, ""},
			{"inbox", `{"type":"prompt","text":"one"}`, `"session/prompt"`},
			{"agent", permission(`{"optionId":"a","kind":"allow_once"}`), `"optionId":"a"`},
			{"inbox", `{"type":"interrupt"}`, `"session/cancel"|"sessionId":"s1"`},
			{"agent", permission(`{"optionId":"a","kind":"allow_once"}`), `"cancelled"`},
			{"agent", `{"jsonrpc":"2.0","id":10,"result":{"stopReason":"cancelled"}}`, ""},
			{"inbox", `{"type":"prompt","text":"two"}`, `"id":11`},
			{"agent", permission(`{"optionId":"a","kind":"allow_once"}`), `"selected"`},
		}, nil},
		{"permissions", Options{}, []step{
			{"agent", permission(`{"optionId":"x","kind":"reject_once"},{"optionId":"y","kind":"allow_always"},{"optionId":"z","kind":"allow_once"}`), `"id":"p"|"optionId":"z"`},
			{"agent", permission(`{"optionId":"x","kind":"reject_once"},{"optionId":"y","kind":"allow_always"}`), `"optionId":"y"`},
			{"agent", permission(`{"optionId":"x","kind":"reject_once"}`), `"outcome":"cancelled"`},
			{"agent", permission(`7`), `"outcome":"cancelled"`},
		}, nil},
		{"files and terminals are not there", Options{}, []step{
			{"agent", `{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{}}`, `"id":7|-32601`},
			{"agent", `{"jsonrpc":"2.0","id":8,"method":"terminal/create"}`, `"id":8|-32601`},
			{"agent", `{"jsonrpc":"2.0","id":null,"method":"terminal/create"}`, ""},
		}, nil},
		{"what is none of ours is ignored", Options{}, []step{
			{"inbox", `{"type":"dance"}`, ""},
			{"inbox", `no JSON`, ""},
			{"agent", `no JSON`, ""},
			{"agent", `[1]`, ""},
			{"agent", `{"jsonrpc":"2.0","id":"10","result":{}}`, ""},
			{"agent", `{"jsonrpc":"2.0","id":7,"result":{}}`, ""},
			{"agent", `{"jsonrpc":"2.0","id":-1,"result":{}}`, ""},
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) { converse(t, New(c.o), c.steps, c.err) })
	}
}

func permission(options string) string {
	return `{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{"options":[` + options + `]}}`
}

func converse(t *testing.T, c *Client, steps []step, want error) {
	t.Helper()
	if start := string(c.Start()); !strings.Contains(start, `"initialize"`) || !strings.Contains(start, `"protocolVersion":1`) {
		t.Errorf("it begins with %s", start)
	}
	var last error
	for i, s := range steps {
		if last != nil {
			t.Fatalf("step %d comes after %v", i, last)
		}
		var told []byte
		if s.from == "inbox" {
			told = c.FromInbox([]byte(s.line))
		} else {
			told, last = c.FromAgent([]byte(s.line))
		}
		checkTold(t, i, told, s.want)
	}
	if !errors.Is(last, want) {
		t.Errorf("ended with %v, want %v", last, want)
	}
}

func checkTold(t *testing.T, i int, told []byte, want string) {
	t.Helper()
	if want == "" {
		if len(told) > 0 {
			t.Errorf("step %d: the agent receives %s", i, told)
		}
		return
	}
	if !json.Valid(told) || strings.Count(string(told), "\n") != 1 {
		t.Errorf("step %d: %q is not one line of JSON", i, told)
	}
	for _, words := range strings.Split(want, "|") {
		if !strings.Contains(string(told), words) {
			t.Errorf("step %d: %s lacks %s", i, told, words)
		}
	}
}

func TestPromptQueueIsBounded(t *testing.T) {
	c := New(Options{})
	for range 2 * maxQueue {
		c.FromInbox([]byte(`{"type":"prompt","text":"x"}`))
	}
	if len(c.queue) != maxQueue {
		t.Errorf("%d prompts wait", len(c.queue))
	}
}

func TestArgsRoundTrip(t *testing.T) {
	for _, o := range []Options{{}, {Cwd: "/a=b"}, {Load: "--x"}, {Cwd: "/a", Load: "l"}} {
		for _, command := range [][]string{{"run"}, {"run", "--", "--cwd=/no"}, {"--load=x"}} {
			got, rest, err := ParseArgs(o.Args(command))
			if err != nil || got != o || strings.Join(rest, " ") != strings.Join(command, " ") {
				t.Errorf("%+v %q: %+v, %q, %v", o, command, got, rest, err)
			}
		}
	}
	for _, bad := range [][]string{nil, {"--"}, {"run"}, {"--cwd=/a"}, {"--what=1", "--", "run"}, {"--=x", "run"}} {
		if _, _, err := ParseArgs(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func FuzzClient(f *testing.F) {
	f.Add([]byte(initialized+"\n"+created+"\n"), []byte(`{"type":"prompt","text":"x"}`))
	f.Add([]byte(permission(`{"optionId":"a","kind":"allow_once"}`)), []byte(`{"type":"interrupt"}`))
	f.Fuzz(func(t *testing.T, agent, inbox []byte) {
		c := New(Options{Load: "x"})
		for _, line := range strings.Split(string(agent), "\n") {
			told, err := c.FromAgent([]byte(line))
			told = append(told, c.FromInbox(inbox)...)
			for _, one := range strings.Split(strings.TrimSuffix(string(told), "\n"), "\n") {
				if len(told) > 0 && !json.Valid([]byte(one)) {
					t.Fatalf("told %q", one)
				}
			}
			if err != nil {
				return
			}
		}
	})
}
