package testagent

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mind is all that the agent knows.
type mind struct {
	// dir holds sessions, and session is its own; empty: it has none.
	dir, session string
	known        []string
}

var (
	framed = regexp.MustCompile(`(?s)^<agbox-context>\n(.*)</agbox-context>\n\n(.*)$`)
	told   = regexp.MustCompile(`(?m)^(?:user: )?remember (.+)$`)
	saved  = regexp.MustCompile(`(?s)<agbox-checkpoint>\n(.*?)\n</agbox-checkpoint>`)
)

// hear takes in a prompt and the past that it comes with, and returns the prompt alone.
func (m *mind) hear(text string) string {
	m.keep(text)
	return m.understand(text)
}

func (m *mind) understand(text string) string {
	if parts := framed.FindStringSubmatch(text); parts != nil {
		if c := saved.FindStringSubmatch(parts[1]); c != nil {
			m.learn("checkpoint " + c[1])
		}
		m.listen(parts[1])
		text = parts[2]
	}
	m.listen(text)
	return text
}

func (m *mind) listen(text string) {
	for _, match := range told.FindAllStringSubmatch(text, -1) {
		m.learn(match[1])
	}
}

// learn keeps what is new.
func (m *mind) learn(fact string) {
	if !slices.Contains(m.known, fact) {
		m.known = append(m.known, fact)
	}
}

func (m *mind) answer() string {
	if len(m.known) == 0 {
		return "you said nothing"
	}
	return "you said: " + strings.Join(m.known, "; ")
}

// keep adds to the session, as the programs do: before the turn begins.
func (m *mind) keep(text string) {
	if m.session == "" {
		return
	}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return // a session that can't be kept is lost, as everywhere
	}
	f, err := os.OpenFile(m.file(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	line, err := json.Marshal(text)
	if err == nil {
		_, _ = f.Write(append(line, '\n'))
	}
}

func (m *mind) file() string { return filepath.Join(m.dir, m.session) }

// resume loads a session and returns what was said in it; false: there is no such one.
func (m *mind) resume(session string) (texts []string, ok bool) {
	m.session = session
	f, err := os.Open(m.file())
	if err != nil {
		return nil, false
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20) // a prompt may come with its past
	for s.Scan() {
		var text string
		if json.Unmarshal(s.Bytes(), &text) == nil {
			m.understand(text)
			texts = append(texts, text)
		}
	}
	return texts, true
}
