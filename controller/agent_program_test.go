package controller_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// given is a prompt that an agent's process has read.
type given struct{ execID, promptID, text string }

// said keeps the prompts that the agents of a world have read, for tests.
type said struct {
	mu       sync.Mutex
	given    []given
	answered map[string]int // results by prompt
	notify   func(sandboxID, execID string)
}

// prompts returns the prompts with that ID that processes have read, without nudges, in order.
func (s *said) prompts(promptID string) (list []given) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.given {
		if g.promptID == promptID {
			list = append(list, g)
		}
	}
	return list
}

// first returns the first prompt that a process has read.
func (s *said) first(execID string) given {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.given {
		if g.execID == execID {
			return g
		}
	}
	return given{}
}

func (s *said) tell(sandboxID, execID string) {
	s.mu.Lock()
	notify := s.notify
	s.mu.Unlock()
	notify(sandboxID, execID)
}

// fakeAgent is one process that speaks the native format. Its command is "agent" with flags: boot=MS until it is ready; die=CODE, it exits
// with CODE instead, before incarnation until=N; life=MS, it exits with CODE that long after it was ready; mute, it never gets ready;
// forgets, it cannot resume a session; stubborn, it needs nearly all of the grace period to end.
type fakeAgent struct {
	s       *fakeShim
	b       *fakeBox
	execID  string
	number  int
	command []string
	flags   map[string]string
	cancel  <-chan struct{}
	more    <-chan struct{}
	read    int64
	claude  *claudeTalk  // nil: it speaks the native format
	later   []nativeLine // prompts that arrived during a turn that leaves them for later turns
}

type nativeLine struct {
	Type     string `json:"type"`
	PromptID string `json:"prompt_id,omitempty"`
	Text     string `json:"text,omitempty"`
	Outcome  string `json:"outcome,omitempty"`
}

func newFakeAgent(s *fakeShim, b *fakeBox, req execjournal.Request, cancel <-chan struct{}) *fakeAgent {
	a := &fakeAgent{s: s, b: b, execID: req.ExecID, command: req.Command, flags: map[string]string{}, cancel: cancel, more: b.feed(req.ExecID)}
	a.claude = newClaudeTalk(req.Command)
	for _, word := range req.Command[1:] {
		k, v, _ := strings.Cut(word, "=")
		a.flags[k] = v
	}
	a.number, _ = strconv.Atoi(req.Env["AGBOX_INCARNATION"])
	return a
}

func (a *fakeAgent) flag(name string, otherwise int) int {
	if n, err := strconv.Atoi(a.flags[name]); err == nil {
		return n
	}
	return otherwise
}

// run returns how it ended, and its exit code if it ended on its own.
func (a *fakeAgent) run() (what, code int) {
	if agentID, _, ok := execid.OfAgent(a.execID); ok && a.claude != nil && a.s.sessions != nil {
		a.s.sessions.begins(a.b.sandbox, agentID, slices.Contains(a.command, "--resume"))
	}
	boot := time.Duration(a.flag("boot", 50))*time.Millisecond + apart(a.execID)
	if what := a.wait(boot); what != byItself {
		return what, 0
	}
	_, lives := a.flags["life"]
	_, dies := a.flags["die"]
	dies = dies && a.number < a.flag("until", 1<<30)
	if dies && !lives {
		return byItself, a.flag("die", 1)
	}
	if _, forgets := a.flags["forgets"]; forgets && slices.Contains(a.command, "--resume") {
		return byItself, 1
	}
	if _, mute := a.flags["mute"]; mute {
		return a.wait(-1), 0
	}
	if a.claude != nil { // it first gets a request
		if _, what := a.next(-1); what != fed {
			return what, 0
		}
	}
	a.say(nativeLine{Type: "ready"})
	left := time.Duration(-1)
	if dies {
		left = time.Duration(a.flag("life", 0)) * time.Millisecond
	}
	for {
		l, what := a.next(left)
		if what != fed {
			return what, a.flag("die", 0)
		}
		if l.Type != "prompt" {
			continue // there is no turn to interrupt
		}
		for a.later = []nativeLine{l}; len(a.later) > 0; {
			l, a.later = a.later[0], a.later[1:]
			if what, code := a.turn(l); what != fed {
				return what, code
			}
		}
	}
}

// turn works on a prompt. what is fed once it has its result.
func (a *fakeAgent) turn(l nativeLine) (what, code int) {
	text := l.Text
	if _, behind, ok := strings.Cut(text, "</agbox-context>\n\n"); ok {
		text = behind
	}
	words := append(strings.Fields(text), "")
	n, _ := strconv.Atoi(words[1])
	took := time.Duration(n)*time.Millisecond + apart(a.execID)
	switch words[0] {
	case "crash", "exit":
		if what := a.wait(took); what != byItself {
			return what, 0
		}
		return byItself, map[string]int{"crash": 1, "exit": 0}[words[0]]
	case "crash-before": // incarnation N, after MS
		more, _ := strconv.Atoi(append(words, "")[2])
		if a.number < n {
			return a.wait(time.Duration(more) * time.Millisecond), 1
		}
		took = 100 * time.Millisecond
	case "result-then-die", "result-then-exit":
		if what := a.wait(took); what != byItself {
			return what, 0
		}
		a.result(l, "end_turn")
		return byItself, map[string]int{"result-then-die": 1, "result-then-exit": 0}[words[0]]
	case "checkpoint":
		a.say(nativeLine{Type: "checkpoint", Text: words[1]})
	case "stream":
		if what := a.stream(n); what != byItself {
			return what, 0
		}
		took = 0
	case "say": // and once more without a prompt
		a.say(nativeLine{Type: "message", Text: "answer"})
		a.result(l, "end_turn")
		return a.mutter(took), 0
	case "flood":
		a.say(slices.Repeat([]nativeLine{{Type: "message", Text: "x"}}, n)...)
		took = -1
	case "work", "queues":
	case "hang", "deaf", "until-nudged":
		took = -1
	default:
		took = 100*time.Millisecond + apart(a.execID)
	}
	a.say(nativeLine{Type: "message_part.updated", Text: "about " + text})
	return a.work(l, words[0], took)
}

func (a *fakeAgent) work(l nativeLine, kind string, took time.Duration) (what, code int) {
	end := time.Now().Add(took)
	for {
		left := time.Duration(-1)
		if took >= 0 {
			left = max(time.Until(end), 0)
		}
		more, what := a.next(left)
		switch {
		case what == byItself:
			a.say(nativeLine{Type: "message_part.updated", Text: "you said " + l.Text})
			a.result(l, "end_turn")
			return fed, 0
		case what != fed:
			return what, 0
		case more.Type == "interrupt" && kind != "deaf":
			a.result(l, "interrupted")
			return fed, 0
		case more.Type == "prompt" && kind == "queues":
			a.later = append(a.later, more)
		case more.Type == "prompt" && kind == "until-nudged":
			a.result(l, "end_turn")
			return fed, 0
		}
	}
}

func (a *fakeAgent) result(l nativeLine, outcome string) {
	a.say(nativeLine{Type: "assistant.completed", Outcome: outcome})
	a.s.said.mu.Lock()
	defer a.s.said.mu.Unlock()
	a.s.said.answered[l.PromptID]++
	if agentID, _, ok := execid.OfAgent(a.execID); ok && a.s.sessions != nil {
		a.s.sessions.turned(a.b.sandbox, agentID)
	}
}

// mutter prints a message while the agent is IDLE.
func (a *fakeAgent) mutter(after time.Duration) (what int) {
	if what := a.wait(after); what != byItself {
		return what
	}
	a.say(nativeLine{Type: "message_part.updated", Text: "unasked"})
	return fed
}

func (a *fakeAgent) say(lines ...nativeLine) {
	var data []byte
	for _, l := range lines {
		list := []any{l}
		if a.claude != nil {
			list = a.claude.says(l)
		}
		for _, one := range list {
			line, err := json.Marshal(one)
			if err != nil {
				panic(err)
			}
			data = append(append(data, line...), '\n')
		}
	}
	a.s.turn("say " + a.execID)
	f, err := os.OpenFile(filepath.Join(a.b.logs, execjournal.StdoutName(a.execID)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return // its sandbox is being removed
	}
	defer f.Close()
	_, _ = f.Write(data)
	defer a.s.said.tell(a.b.sandbox, a.execID)
}

// wait lets time pass, forever if d is negative; it reads its input later.
func (a *fakeAgent) wait(d time.Duration) int {
	for {
		what, left := a.b.await(d, a.cancel, a.more)
		if what != fed {
			return a.ended(what)
		}
		d = left
	}
}

// next returns the next line of the inbox, or byItself after d, or what ended it.
func (a *fakeAgent) next(d time.Duration) (nativeLine, int) {
	for {
		if l, ok := a.line(); ok {
			return l, fed
		}
		what, left := a.b.await(d, a.cancel, a.more)
		if what != fed {
			return nativeLine{}, a.ended(what)
		}
		d = left
	}
}

func (a *fakeAgent) ended(what int) int {
	if _, stubborn := a.flags["stubborn"]; stubborn && what == wasCancelled {
		if a.b.outlast(9*time.Second, nil) == died {
			return died
		}
	}
	return what
}

// line reads one complete line, if there is one.
func (a *fakeAgent) line() (l nativeLine, ok bool) {
	data, err := os.ReadFile(filepath.Join(a.b.ctl, execjournal.ExecDir, execjournal.InboxName(a.execID)))
	if err != nil || int64(len(data)) <= a.read {
		return l, false
	}
	line, _, whole := bytes.Cut(data[a.read:], []byte("\n"))
	if !whole {
		return l, false
	}
	a.read += int64(len(line)) + 1
	if a.claude != nil {
		l = a.claude.told(line)
	} else if err := json.Unmarshal(line, &l); err != nil {
		panic(fmt.Sprintf("%s was told %q", a.execID, line))
	}
	if l.Type == "prompt" {
		a.s.said.mu.Lock()
		defer a.s.said.mu.Unlock()
		a.s.said.given = append(a.s.said.given, given{a.execID, l.PromptID, l.Text})
	}
	return l, true
}

// feed returns the channel that signals growth of an exec's inbox.
func (b *fakeBox) feed(execID string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inboxes[execID] == nil {
		b.inboxes[execID] = make(chan struct{}, 1)
	}
	return b.inboxes[execID]
}

// fed signals that an inbox was written.
func (s *fakeShim) fed(sandboxID, execID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		if b.sandbox == sandboxID {
			select {
			case b.feed(execID) <- struct{}{}:
			default:
			}
		}
	}
}

// summarize is a summary command: after MS it prints the number of lines of its standard input, and fails if that has not ended.
func (s *fakeShim) summarize(b *fakeBox, req execjournal.Request, cancel <-chan struct{}) (what, code int) {
	took, _ := strconv.Atoi(req.Command[1])
	if what := b.outlast(time.Duration(took)*time.Millisecond, cancel); what != byItself {
		return what, 0
	}
	dir := filepath.Join(b.ctl, execjournal.ExecDir)
	if _, err := os.Stat(filepath.Join(dir, execjournal.ClosedName(req.ExecID))); err != nil {
		return byItself, 2
	}
	data, err := os.ReadFile(filepath.Join(dir, execjournal.InboxName(req.ExecID)))
	if err != nil {
		return byItself, 3
	}
	text := fmt.Sprintf("in short: %d lines\n", bytes.Count(data, []byte("\n")))
	if err := os.WriteFile(filepath.Join(b.logs, execjournal.StdoutName(req.ExecID)), []byte(text), 0o600); err != nil {
		return byItself, 4
	}
	return byItself, 0
}
