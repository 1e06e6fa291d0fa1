package controller_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// stream prints lines of every kind, including invalid ones, each in two writes.
func (a *fakeAgent) stream(lines int) (what int) {
	for i := range lines {
		text := []string{
			fmt.Sprintf(`{"type":"message_part.updated","text":"up to %d"}`, i),
			fmt.Sprintf(`{"type":"message_part.updated","part":1,"kind":"tool_call","tool_name":"sh","text":"call %d"}`, i),
			fmt.Sprintf("plain \xff text %d", i),
			`{"type":"message.completed"}`,
			fmt.Sprintf(`{"type":"message","text":"whole %d"}`, i),
			fmt.Sprintf(`{"type":"checkpoint","text":"at %d"}`, i),
			`{"type":"message_part.updated","text":`,
		}[i%7] + "\n"
		for _, piece := range []string{text[:len(text)/2], text[len(text)/2:]} {
			a.raw(piece)
			if what := a.wait(10 * time.Millisecond); what != byItself {
				return what
			}
		}
	}
	return byItself
}

func (a *fakeAgent) raw(text string) {
	f, err := os.OpenFile(filepath.Join(a.b.logs, execjournal.StdoutName(a.execID)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return // its sandbox is being removed
	}
	defer f.Close()
	_, _ = f.WriteString(text)
	a.s.said.tell(a.b.sandbox, a.execID)
}

// TestManyKillsDoNotChangeWhatIsStored: the daemon is killed 200 times, after some of its side effects, while an agent streams. The final
// records equal those of an undisturbed daemon, including sequence numbers. With -short it is killed 40 times.
func TestManyKillsDoNotChangeWhatIsStored(t *testing.T) {
	kills := 200
	if testing.Short() {
		kills = 40
	}
	want, got := storedStream(t, 0), storedStream(t, kills)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if n := strings.Count(want, "\n"); n < 300 {
		t.Errorf("%d events:\n%s", n, want)
	}
}

func storedStream(t *testing.T, kills int) (stored string) {
	t.Helper()
	dir, err := os.MkdirTemp(fastDir(), "agbox-stream-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(dir)
		defer func() {
			if err := p.close(); err != nil {
				t.Error(err)
			}
		}()
		if err := p.start(-1); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		p.newAgent(t, p.readyBox(t), "ada", nil)
		pass(time.Second)
		p.prompt(t, "ada", "stream 1000") // 20 seconds
		for range kills {
			if err := p.restart(rand.IntN(12)); err != nil {
				t.Fatal(err)
			}
			pass(rand.N(150 * time.Millisecond))
		}
		if kills > 0 && p.outcomes(t, "ada") != "" {
			t.Error("the stream was over before the last kill")
		}
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		p.wantOutcomes(t, "ada", "stream_1000:end_turn")
		p.wantGiven(t, "stream 1000", 1)
		var b strings.Builder
		for _, e := range p.agentEvents(t, "ada") {
			e = proto.CloneOf(e)
			e.OccurredAt = nil
			if tr := e.GetTransition(); tr != nil {
				tr.OccurredAt = nil
			}
			fmt.Fprintln(&b, textOf(e))
		}
		stored = b.String()
	})
	return stored
}

// textOf is deterministic, unlike the String method of a message.
func textOf(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%q", b)
}
