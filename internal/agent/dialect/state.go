package dialect

import "encoding/json"

const (
	stateVersion = 1
	// maxStream is where a part of pieces ends. In the state, which is JSON, its bytes take a third more.
	maxStream = 24 << 10
	// maxID bounds IDs of the program, of tool calls and of messages, maxName names and outcomes.
	maxID   = 256
	maxName = 128
	// maxTools is how many tool calls are remembered, maxDrafts how many parts wait for their final text.
	maxTools  = 32
	maxDrafts = 16
	// maxPart bounds the numbers of the parts of one message.
	maxPart = 100_000
)

// state is what a decoder remembers from line to line.
type state struct {
	Version int `json:"v"`
	// Messages counts the messages so far; the open one is the last. Foreign is the program's own ID of it.
	Messages uint64 `json:"m,omitempty"`
	Open     bool   `json:"o,omitempty"`
	Foreign  string `json:"f,omitempty"`
	// Parts is the number of the next part.
	Parts uint32 `json:"p,omitempty"`
	// Grown is one more than the number of the first part of the open message that came in pieces; 0: none did.
	Grown uint32 `json:"w,omitempty"`
	// Stream is the text part that still grows.
	Stream *stream `json:"s,omitempty"`
	// Ready: said once. Spoke: the assistant has said something in this turn.
	Ready bool `json:"r,omitempty"`
	Spoke bool `json:"k,omitempty"`
	// Begun: the program has said that a turn begins, which has not ended.
	Begun bool `json:"b,omitempty"`
	// Session is the session's ID, Named whether it was told. CanLoad: sessions can be resumed at all.
	Session string `json:"i,omitempty"`
	Named   bool   `json:"n,omitempty"`
	CanLoad bool   `json:"l,omitempty"`
	// Lost: the session could not be resumed, which is told once.
	Lost bool `json:"g,omitempty"`
	// Interrupted: the turn was asked to end, and the program has agreed.
	Interrupted bool `json:"x,omitempty"`
	// LastText: the last part was text, and a further one is another paragraph.
	LastText bool    `json:"t,omitempty"`
	Drafts   []draft `json:"d,omitempty"`
	Tools    []tool  `json:"c,omitempty"`
}

// stream is a part that comes in pieces. Told is how much of Text was told.
type stream struct {
	Part uint32 `json:"p"`
	Kind string `json:"k"`
	Text []byte `json:"t"`
	Told int    `json:"n"`
	// Full: no more is taken, for the whole text comes later anyway.
	Full bool `json:"f,omitempty"`
}

// draft is a part that was streamed and whose whole text is to come.
type draft struct {
	Part uint32 `json:"p"`
	Kind string `json:"k"`
}

// tool is a tool call and where its result is told, once there is one.
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

// sound keeps a state that nobody here wrote from breaking the bounds.
func (s *state) sound() bool {
	return s.Version == stateVersion && s.Parts <= maxPart && s.Grown <= s.Parts && len(s.Foreign) <= maxID && len(s.Session) <= maxID &&
		s.soundDrafts() && s.soundTools() && (s.Stream == nil || s.soundStream())
}

func (s *state) soundDrafts() bool {
	for _, d := range s.Drafts {
		if d.Part >= maxPart {
			return false
		}
	}
	return len(s.Drafts) <= maxDrafts
}

func (s *state) soundStream() bool {
	t := s.Stream
	return len(t.Text) <= maxStream && t.Told >= 0 && t.Told <= len(t.Text) && t.Part < s.Parts && s.Open &&
		(t.Kind == kindText || t.Kind == kindReasoning)
}

func (s *state) soundTools() bool {
	for _, t := range s.Tools {
		if len(t.ID) > maxID || len(t.Name) > maxName || t.Part >= maxPart || t.Result != nil && *t.Result >= maxPart {
			return false
		}
	}
	return len(s.Tools) <= maxTools
}

// fit forgets the tool calls if their names, which JSON may write six times as long, would be too much for MaxState. The rest is
// always within the bound. It comes after each line, whether or not the state is written then.
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
