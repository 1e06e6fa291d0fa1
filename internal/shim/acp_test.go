package shim

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// acpAgent is a shell script that speaks ACP: on every prompt it asks for permission and then ends its turn.
const acpAgent = `trap 'echo "{\"jsonrpc\":\"2.0\",\"method\":\"bye\"}"; exit 9' TERM
n=10
while read -r line; do
	echo "heard $line" >&2
	case "$line" in
	*initialize*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}' ;;
	*session/new*) echo '{"jsonrpc":"2.0","id":3,"result":{"sessionId":"s1"}}' ;;
	*session/prompt*quit*) exit 5 ;;
	*session/prompt*)
		echo '{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{"options":[{"optionId":"yes","kind":"allow_once"}]}}'
		read -r answer
		echo "heard $answer" >&2
		echo "{\"jsonrpc\":\"2.0\",\"id\":$n,\"result\":{\"stopReason\":\"end_turn\"}}"
		n=$((n+1)) ;;
	esac
done
exit 7`

func (b *box) acpRequest(script string, options ...string) execjournal.Request {
	b.Helper()
	self, err := os.Executable()
	must(b, err)
	r := b.agent("")
	r.Command = append([]string{self, "acp"}, options...)
	r.Command = append(r.Command, "--", "sh", "-c", script)
	return r
}

func TestACPAgentIsPromptedThroughItsInbox(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.acpRequest(acpAgent)
	r.Cwd = t.TempDir()
	b.start(r)
	b.says(r, `"sessionId":"s1"`)
	for i := range 3 {
		b.give(r, fmt.Sprintf(`{"type":"prompt","prompt_id":"p%d","text":"do %d"}`+"\n", i, i))
		b.says(r, fmt.Sprintf(`"id":%d,"result":{"stopReason":"end_turn"}`, 10+i))
	}
	b.give(r, `{"type":"prompt","prompt_id":"p9","text":"quit"}`+"\n")
	if j := b.ended(r); j.ExitCode != 5 {
		t.Errorf("%+v", j)
	}
	_, heard := b.logs(r)
	for _, want := range []string{`"cwd":"` + r.Cwd + `"`, `"optionId":"yes"`, `"text":"do 2"`} {
		if !strings.Contains(heard, want) {
			t.Errorf("not heard: %s in\n%s", want, heard)
		}
	}
	closed := b.start(b.acpRequest(acpAgent))
	b.says(closed, `"sessionId":"s1"`)
	b.closeInbox(closed)
	if j := b.ended(closed); j.ExitCode != 7 {
		t.Errorf("after the end of the inbox: %+v", j)
	}
}

func TestACPAgentsEnds(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	if j := b.ended(b.start(b.acpRequest("kill -9 $$"))); j.ExitCode != 137 {
		t.Errorf("a killed agent: %+v", j)
	}
	missing := b.acpRequest("")
	missing.Command = []string{missing.Command[0], "acp", "--", "no-such-agent"}
	if j := b.ended(b.start(missing)); j.ExitCode != exitNotFound {
		t.Errorf("a missing agent: %+v", j)
	}
	refuses := b.acpRequest(`read x; echo '{"jsonrpc":"2.0","id":2,"result":{}}'; exec sleep 1000`, "--load=old")
	if j := b.ended(b.start(refuses)); j.ExitCode != exitNoSession {
		t.Errorf("an agent that can't load: %+v", j)
	}
	newer := b.start(b.acpRequest(`trap "echo ended by a signal >&2; exit" TERM; read x
		echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":2}}'; while :; do sleep 0.05; done`))
	if j := b.ended(newer); j.ExitCode != exitNoSession {
		t.Errorf("an agent of another version: %+v", j)
	}
	if _, said := b.logs(newer); !strings.HasSuffix(said, "acp: no session: the agent speaks version 2 of the Agent Client Protocol, not 1\n") {
		t.Errorf("the last words are not the reason: %q", said)
	}
	bad := b.acpRequest("")
	bad.Command = []string{bad.Command[0], "acp", "--nonsense"}
	if j := b.ended(b.start(bad)); j.ExitCode != 2 {
		t.Errorf("wrong arguments: %+v", j)
	}
	b.until("nothing to be left", func() bool { return b.remnants() == 0 })
}

// A cancel lets the agent write its last output; the supervisor kills an agent that never reads.
func TestACPAgentIsCancelled(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	polite := b.start(b.acpRequest(acpAgent))
	b.says(polite, `"sessionId":"s1"`)
	deaf := b.acpRequest(`trap "" TERM; echo up; while :; do sleep 0.05; done`)
	deaf.CancelGraceMillis = 200
	b.start(deaf)
	b.says(deaf, "up\n")
	for range 40 {
		b.give(deaf, `{"type":"prompt","text":"`+strings.Repeat("x", 1<<16)+`"}`+"\n")
	}
	b.cancel(polite)
	b.cancel(deaf)
	if j := b.ended(polite); !j.Cancelled || j.ExitCode != 9 {
		t.Errorf("%+v", j)
	}
	if out, _ := b.logs(polite); !strings.HasSuffix(out, `"method":"bye"}`+"\n") {
		t.Errorf("%q", out)
	}
	if j := b.ended(deaf); !j.Cancelled {
		t.Errorf("%+v", j)
	}
}
