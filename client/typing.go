package client

import (
	"context"
	"io"
	"sync"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	// typingPiece is how much is read and sent at once, typingRoom how much may wait for the exec to take it, both in bytes.
	typingPiece = 64 << 10
	typingRoom  = 1 << 20
)

// typing is standard input on its way to an exec. It keeps what the exec has not taken, so that a new connection can send it again.
type typing struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	base    int64         // offset of buf in the input; everything before was taken
	buf     []byte
	eof     bool
	over    bool // the exec takes no more
}

// newTyping starts to read r. The reader goroutine ends at the end of r, at its first error, or with the first byte that it reads when the exec
// takes no more: a read of a terminal cannot be interrupted.
func newTyping(r io.Reader) *typing {
	t := &typing{changed: make(chan struct{})}
	go t.read(r)
	return t
}

func (t *typing) read(r io.Reader) {
	piece := make([]byte, typingPiece)
	for {
		n, err := r.Read(piece)
		if !t.add(piece[:n]) {
			return
		}
		if err != nil {
			t.update(func() { t.eof = true })
			return
		}
	}
}

// add waits for room and adds data. It returns false if the exec takes no more.
func (t *typing) add(data []byte) bool {
	for {
		t.mu.Lock()
		over, room, changed := t.over, len(t.buf) < typingRoom, t.changed
		t.mu.Unlock()
		if over {
			return false
		}
		if room {
			t.update(func() { t.buf = append(t.buf, data...) })
			return true
		}
		<-changed
	}
}

func (t *typing) update(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	close(t.changed)
	t.changed = make(chan struct{})
}

// taken drops what the exec has taken.
func (t *typing) taken(offset int64) {
	t.update(func() {
		if n := min(offset-t.base, int64(len(t.buf))); n > 0 {
			t.base, t.buf = t.base+n, t.buf[n:]
		}
		if len(t.buf) == 0 {
			t.buf = nil
		}
	})
}

// finish says that the exec takes no more. first is false if that was known.
func (t *typing) finish() (first bool) {
	t.update(func() { first, t.over = !t.over, true })
	return first
}

// send sends from an offset on until the input or ctx ends, or send fails.
func (t *typing) send(ctx context.Context, offset int64, send func(*agboxv1.AttachExecRequest) error) {
	for {
		chunk, changed := t.next(offset)
		if chunk == nil {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		if send(&agboxv1.AttachExecRequest{Request: &agboxv1.AttachExecRequest_Stdin{Stdin: chunk}}) != nil || chunk.GetClose() {
			return // Recv has the reason
		}
		offset += int64(len(chunk.GetData()))
	}
}

// next returns what is to be sent at an offset; nil if there is nothing yet.
func (t *typing) next(offset int64) (*agboxv1.StdinChunk, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || offset < t.base {
		return nil, t.changed // an exec has never taken less than it acknowledged
	}
	left := t.buf[min(offset-t.base, int64(len(t.buf))):]
	data := append([]byte(nil), left[:min(len(left), typingPiece)]...)
	end := t.eof && len(data) == len(left)
	if len(data) == 0 && !end {
		return nil, t.changed
	}
	return &agboxv1.StdinChunk{Offset: offset, Data: data, Close: end}, t.changed
}
