package dialect

import (
	"encoding/json"
	"slices"
)

const (
	stateVersion = 1
	// maxStream is the size at which a part of pieces ends. In the state, which is JSON, it takes a third more.
	maxStream = 24 << 10
	// maxID bounds the program's IDs of sessions, messages and tool calls; maxName bounds names and outcomes.
	maxID   = 256
	maxName = 128
	// maxTools is how many tool calls the state holds, maxDrafts how many parts await their final text.
	maxTools  = 32
	maxDrafts = 16
	// maxPart bounds the numbers of the parts of one message.
	maxPart = 100_000
)

// state is what a decoder keeps between lines.
type state struct {
	Version int `json:"v"`
	// Messages counts the messages so far; the open one is the last. Foreign is the program's own ID of it.
	Messages uint64 `json:"m,omitempty"`
	Open     bool   `json:"o,omitempty"`
	Foreign  string `json:"f,omitempty"`
	// Parts is the number of the next part.
	Parts uint32 `json:"p,omitempty"`
	// Grown is one more than the number of the first part of the open message that came in pieces; 0: none.
	Grown uint32 `json:"w,omitempty"`
	// Stream is the text part that still grows.
	Stream *stream `json:"s,omitempty"`
	// Ready: reported once. Spoke: the assistant has emitted text in this turn.
	Ready bool `json:"r,omitempty"`
	Spoke bool `json:"k,omitempty"`
	// Begun: the program has reported the start of a turn that has not ended.
	Begun bool `json:"b,omitempty"`
	// Session is the session's ID, Named whether it was reported. CanLoad: the program can resume sessions.
	Session string `json:"i,omitempty"`
	Named   bool   `json:"n,omitempty"`
	CanLoad bool   `json:"l,omitempty"`
	// Lost: the session could not be resumed, and that was reported.
	Lost bool `json:"g,omitempty"`
	// Interrupted: the turn was interrupted, and the program has confirmed it.
	Interrupted bool `json:"x,omitempty"`
	// LastText: the last part was text, so further text is another paragraph.
	LastText bool    `json:"t,omitempty"`
	Drafts   []draft `json:"d,omitempty"`
	Tools    []tool  `json:"c,omitempty"`
}

// stream is a part that arrives in pieces. Told is how many bytes of Text were emitted.
type stream struct {
	Part uint32 `json:"p"`
	Kind string `json:"k"`
	Text []byte `json:"t"`
	Told int    `json:"n"`
	// Full: no more text is added, since a later line has the whole text.
	Full bool `json:"f,omitempty"`
}

// draft is a streamed part whose whole text is still to come.
type draft struct {
	Part uint32 `json:"p"`
	Kind string `json:"k"`
}

// tool is a tool call, and the part of its result once there is one.
type tool struct {
	ID     string  `json:"i"`
	Name   string  `json:"n,omitempty"`
	Part   uint32  `json:"p"`
	Result *uint32 `json:"r,omitempty"`
}

func loadState(b []byte) *state {
	s := &state{}
	if len(b) > 0 && len(b) <= MaxState {
		if json.Unmarshal(b, s) != nil || !s.sound() {
			s = &state{}
		}
	}
	s.Version = stateVersion
	return s
}

// sound checks the bounds of a stored state, which may be damaged.
func (s *state) sound() bool {
	return s.Version == stateVersion && s.Parts <= maxPart && s.Grown <= s.Parts && len(s.Foreign) <= maxID && len(s.Session) <= maxID &&
		len(s.Drafts) <= maxDrafts && !slices.ContainsFunc(s.Drafts, func(d draft) bool { return d.Part >= maxPart }) &&
		len(s.Tools) <= maxTools && !slices.ContainsFunc(s.Tools, tool.unsound) && (s.Stream == nil || s.soundStream())
}

func (t tool) unsound() bool {
	return len(t.ID) > maxID || len(t.Name) > maxName || t.Part >= maxPart || t.Result != nil && *t.Result >= maxPart
}

func (s *state) soundStream() bool {
	t := s.Stream
	return len(t.Text) <= maxStream && t.Told >= 0 && t.Told <= len(t.Text) && t.Part < s.Parts && s.Open &&
		(t.Kind == kindText || t.Kind == kindReasoning)
}

// fit drops the tool calls if their names, which JSON may encode at six times the size, would exceed MaxState. The rest always
// fits. It runs after each line, whether or not the state is saved then.
func (s *state) fit() {
	size := 6*(len(s.Foreign)+len(s.Session)) + 4096 // members, numbers and drafts
	if s.Stream != nil {
		size += len(s.Stream.Text)/3*4 + 4
	}
	for _, t := range s.Tools {
		size += 6*(len(t.ID)+len(t.Name)) + 64
	}
	if size <= MaxState {
		return
	}
	if b, _ := json.Marshal(s); len(b) > MaxState {
		s.Tools = nil
	}
}

func (s *state) save() []byte {
	s.fit()
	b, _ := json.Marshal(s) // strings and numbers only
	return b
}
