package shim

import (
	"fmt"
	"io"
	"os"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// A word is a message from a program inside an agent's exec to agboxd: one line of the outbox, in the native format of package
// internal/agent/dialect.
const (
	wordCheckpoint = "checkpoint"
	wordDone       = "done"
	wordStatus     = "status"
	// maxWordBytes is the longest text that agboxd stores.
	maxWordBytes = 64 << 10
	wordUsage    = "usage: agbox-shim checkpoint TEXT|-, agbox-shim done [OUTCOME], agbox-shim status TEXT|-"
)

// word is one line of the outbox, as JSON.
type word struct {
	Type    string `json:"type"`
	Text    string `json:"text,omitempty"`
	Outcome string `json:"outcome,omitempty"`
}

func isWord(args []string) bool {
	return len(args) > 0 && (args[0] == wordCheckpoint || args[0] == wordDone || args[0] == wordStatus)
}

// runWord appends a word to the outbox of the exec that it is called in. It reads standard input only if the text is "-", because standard
// input may be the agent's own, with its prompts.
func runWord(at Places, args []string, stdin io.Reader) int {
	w, text := word{Type: args[0]}, ""
	switch {
	case len(args) == 2:
		text = args[1]
	case len(args) != 1 || w.Type != wordDone:
		say(wordUsage)
		return 2
	}
	if text == "-" && w.Type != wordDone {
		data, err := io.ReadAll(io.LimitReader(stdin, maxWordBytes+1))
		if err != nil {
			say("%s: read the text: %v", w.Type, err)
			return 1
		}
		text = string(data)
	}
	if len(text) > maxWordBytes {
		say("%s: the text is longer than %d bytes", w.Type, maxWordBytes)
		return 1
	}
	if w.Text = text; w.Type == wordDone {
		w.Text, w.Outcome = "", text
	}
	if err := speak(at, w); err != nil {
		say("%s: %v", w.Type, err)
		return 1
	}
	return 0
}

func speak(at Places, w word) error {
	id := os.Getenv(execjournal.ExecIDEnv)
	if !execjournal.ValidExecID(id) {
		return fmt.Errorf("this is no agent: %s is not set", execjournal.ExecIDEnv)
	}
	line, err := execjournal.Encode(w)
	if err != nil {
		return err
	}
	return appendOutbox(at.Out, id, line)
}
