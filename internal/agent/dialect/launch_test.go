package dialect

import (
	"strings"
	"testing"
)

func TestLaunch(t *testing.T) {
	const claudeFlags = "--print --input-format stream-json --output-format stream-json --verbose"
	for _, c := range []struct {
		name, format string
		p            LaunchParams
		command      string
		first        string
	}{
		{"native runs the command as it is", Native, LaunchParams{SessionID: "s", Resume: true, Cwd: "/w"}, "run -x", ""},
		{"a new Claude session is named by us", Claude, LaunchParams{SessionID: "s"}, "run -x " + claudeFlags + " --session-id s", "agbox-new:s"},
		{"a Claude session is resumed", Claude, LaunchParams{SessionID: "s", Resume: true}, "run -x " + claudeFlags + " --resume s", "agbox-resume:s"},
		{"nothing to resume starts over", Claude, LaunchParams{Resume: true}, "run -x " + claudeFlags, "agbox-new:"},
		{"ACP runs under the shim's client", ACP, LaunchParams{SessionID: "s", Cwd: "/w"}, shim + " acp --cwd=/w -- run -x", ""},
		{"an ACP session is loaded", ACP, LaunchParams{SessionID: "s", Cwd: "/w", Resume: true}, shim + " acp --cwd=/w --load=s -- run -x", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.p.Command = []string{"run", "-x"}
			command, first := Launch(c.format, c.p)
			if got := strings.Join(command, " "); got != c.command {
				t.Errorf("got %s\nwant %s", got, c.command)
			}
			if c.first == "" && first != nil || !strings.Contains(string(first), `"`+c.first+`"`) && c.first != "" {
				t.Errorf("stdin begins with %q", first)
			}
			if strings.Join(c.p.Command, " ") != "run -x" {
				t.Error("the spec's command was changed")
			}
		})
	}
}

func TestLaunchDoesNotRepeatFlags(t *testing.T) {
	command, _ := Launch(Claude, LaunchParams{Command: strings.Fields("claude -p --verbose --input-format=stream-json")})
	if got, want := strings.Join(command, " "), "claude -p --verbose --input-format=stream-json --output-format stream-json"; got != want {
		t.Errorf("got %s", got)
	}
}

// The decoder gets the session ID from the response to Launch's request.
func TestClaudeSessionIsResumedByItsLaunchID(t *testing.T) {
	_, first := Launch(Claude, LaunchParams{SessionID: "our-own", Resume: true})
	_, id, _ := strings.Cut(string(first), `"request_id":"`)
	id, _, _ = strings.Cut(id, `"`)
	out := decodeAll(t, Claude,
		`{"type":"control_response","response":{"subtype":"success","request_id":"`+id+`"}}`,
		`{"type":"system","subtype":"init","session_id":"a-tag-of-this-run"}`)
	if len(out) != 2 || !out[0].Ready || out[1].SessionID != "our-own" {
		t.Errorf("%+v", out)
	}
}
