package dialect

import "testing"

// A session without a prompt never received the context: resuming it would lose the conversation.
func TestACPSessionIsNotReportedBeforeItsFirstPrompt(t *testing.T) {
	const canLoad = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}`
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"new", []string{canLoad, newSession}, ""},
		{"told what it can do", []string{canLoad, newSession, `{"method":"session/update","params":{"update":{"sessionUpdate":"available_commands_update"}}}`}, ""},
		{"works", []string{canLoad, newSession, chunk("I read"), chunk(" on")}, "s"},
		{"has ended a turn without a word", []string{canLoad, newSession, `{"id":16,"result":{"stopReason":"end_turn"}}`}, "s"},
		{"can't load it", []string{newSession, chunk("I read")}, ""},
	} {
		got := ""
		for _, o := range decodeAll(t, ACP, c.lines...) {
			got += o.SessionID
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestACPErrorsHaveTheirDetails(t *testing.T) {
	const failed = `{"id":16,"error":{"code":-32603,"message":"Internal error","data":{"details":"quota exceeded"}}}`
	var got string
	for _, o := range decodeAll(t, ACP, newSession, failed) {
		if o.Result {
			got = o.Event.GetResult().GetError()
		}
	}
	if got != "Internal error: quota exceeded" {
		t.Errorf("the turn ended with %q", got)
	}
}
