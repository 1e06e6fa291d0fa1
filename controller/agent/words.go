package agent

import (
	"bytes"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
)

const (
	// wordsTail is how much of the end of stderr is looked at, in bytes.
	wordsTail = 4 << 10
	// maxWords bounds what is told of it, in characters.
	maxWords = 200
)

// escapes are what terminals take for colours and the like: without its first character the rest would stay as text.
var escapes = regexp.MustCompile("\x1b\\[[0-9;:?]*[ -/]*[@-~]")

// observeWords records the last stderr line of a process that exited by itself, until its exit is classified.
func (v *Observation) observeWords(envs map[string]string) {
	switch v.a.Status.GetState() {
	case agboxv1.AgentState_AGENT_STATE_STOPPED, agboxv1.AgentState_AGENT_STATE_FAILED:
		return
	}
	if v.World.Process == agentplan.Ended && !v.World.Cancelled {
		v.World.Words = v.lastWords(envs)
	}
}

// lastWords is the last line with a letter or a digit of an ended process's stderr, without the values of its environment variables. It
// is a hint for people and empty if the file can't be read.
func (v *Observation) lastWords(envs map[string]string) string {
	tail, err := v.o.files.Tail(v.a.SandboxID, v.ExecID, true, wordsTail)
	if err != nil {
		return ""
	}
	if len(tail) == wordsTail { // its first line is a part of one, and a secret in it may be too
		_, tail, _ = bytes.Cut(tail, []byte("\n"))
	}
	return lastLine(tail, v.a.Spec.GetEnvs(), envs)
}

// lastLine redacts before it cuts lines: a value may have several.
func lastLine(tail []byte, envs ...map[string]string) string {
	text := message.Redact(message.Printable(escapes.ReplaceAll(tail, nil)), envs...)
	for text != "" {
		at := strings.LastIndexByte(text, '\n')
		if line := strings.Join(strings.Fields(text[at+1:]), " "); saysSomething(line) {
			return shortWords(line)
		}
		text = text[:max(at, 0)]
	}
	return ""
}

// saysSomething reports whether a line is more than a bracket or a rule.
func saysSomething(line string) bool {
	return strings.ContainsFunc(line, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

func shortWords(line string) string {
	if utf8.RuneCountInString(line) <= maxWords {
		return line
	}
	return string([]rune(line)[:maxWords-3]) + "..."
}

// sandboxWaits says why a sandbox that is there is not up.
func sandboxWaits(rec plan.Record) string {
	if rec.State == agboxv1.SandboxState_SANDBOX_STATE_READY {
		switch rec.Desired {
		case storev1.RunState_RUN_STATE_STOP:
			return "its sandbox is about to stop"
		case storev1.RunState_RUN_STATE_PAUSE:
			return "its sandbox is about to be paused"
		}
	}
	return "its sandbox is " + enum.Word(rec.State)
}
