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
	// wordsTail is how many bytes at the end of stderr are read.
	wordsTail = 4 << 10
	// maxWords bounds the line, in characters.
	maxWords = 200
)

// escapes are terminal escape sequences such as colours: message.Printable would drop only their first character and leave the rest as
// text.
var escapes = regexp.MustCompile("\x1b\\[[0-9;:?]*[ -/]*[@-~]")

// observeWords records the last stderr line of a process that ended on its own, until its exit is classified: the last one that contains a
// letter or a digit, with the values of its environment variables redacted. It is a hint for humans, and empty if the file can't be read.
func (v *Observation) observeWords(envs map[string]string) {
	if !agentplan.Lives(v.a.Status.GetState()) || v.World.Process != agentplan.Ended || v.World.Cancelled {
		return
	}
	tail, err := v.o.files.Tail(v.a.SandboxID, v.ExecID, true, wordsTail)
	if err != nil {
		return
	}
	if len(tail) == wordsTail { // the first line is incomplete, and so may be a secret in it
		_, tail, _ = bytes.Cut(tail, []byte("\n"))
	}
	v.World.Words = lastLine(tail, v.a.Spec.GetEnvs(), envs, v.o.files.SecretValues(v.a.SandboxID, ""))
}

// lastLine redacts before it splits lines: a value may span several.
func lastLine(tail []byte, envs ...map[string]string) string {
	text := message.Redact(message.Printable(escapes.ReplaceAll(tail, nil)), envs...)
	for text != "" {
		at := strings.LastIndexByte(text, '\n')
		if line := strings.Join(strings.Fields(text[at+1:]), " "); isInformative(line) {
			return shortWords(line)
		}
		text = text[:max(at, 0)]
	}
	return ""
}

// isInformative reports whether a line has a letter or a digit.
func isInformative(line string) bool {
	return strings.ContainsFunc(line, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

func shortWords(line string) string {
	if utf8.RuneCountInString(line) <= maxWords {
		return line
	}
	return string([]rune(line)[:maxWords-3]) + "..."
}

// sandboxWaits says why an existing sandbox is not up.
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
