package client

import (
	"context"
	"io"
	"sync"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// typingRoom is how much standard input may wait for the exec to take it, in bytes.
const typingRoom = 1 << 20

// typing is standard input on its way to an exec. It keeps what the exec has not taken, so that a new connection can send it again.
type typing struct {
	ring []byte // what was read, at its offset modulo typingRoom; written by the reader goroutine alone

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	waited  bool          // for changed
	base    int64         // the exec has taken all bytes before this offset
	end     int64         // offset behind what was read
	eof     bool
	over    bool // the exec takes no more
}

// newTyping starts to read r. The reader goroutine ends at the end of r, at its first error, or with the first byte that it reads when the exec
// takes no more: a read of a terminal cannot be interrupted.
func newTyping(r io.Reader) *typing {
	t := &typing{ring: make([]byte, typingRoom), changed: make(chan struct{})}
	go t.read(r)
	return t
}

func (t *typing) read(r io.Reader) {
	for {
		free := t.free()
		if free == nil {
			return
		}
		n, err := r.Read(free)
		t.update(func() { t.end, t.eof = t.end+int64(n), err != nil })
		if err != nil {
			return
		}
	}
}

// free waits for room and returns the next part of the ring; nil if the exec takes no more.
func (t *typing) free() []byte {
	for {
		t.mu.Lock()
		over, room, at := t.over, t.base+typingRoom-t.end, t.end%typingRoom
		changed := t.wait()
		t.mu.Unlock()
		if over {
			return nil
		}
		if room > 0 {
			return t.ring[at:min(at+room, at+agboxv1.PieceBytes, typingRoom)]
		}
		<-changed
	}
}

// wait returns what the next change closes. The caller holds mu.
func (t *typing) wait() <-chan struct{} {
	t.waited = true
	return t.changed
}

func (t *typing) update(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	if t.waited {
		close(t.changed)
		t.changed, t.waited = make(chan struct{}), false
	}
}

// taken drops what the exec has taken.
func (t *typing) taken(offset int64) {
	t.update(func() { t.base = max(t.base, min(offset, t.end)) })
}

// finish says that the exec takes no more. first is false if that was known.
func (t *typing) finish() (first bool) {
	t.update(func() { first, t.over = !t.over, true })
	return first
}

// isOver reports whether the exec takes no more, such as from this client after another one took over.
func (t *typing) isOver() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// send sends from an offset on until the input or ctx ends, or send fails.
func (t *typing) send(ctx context.Context, offset int64, send func(*agboxv1.StdinChunk) error) {
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
		offset += int64(len(chunk.GetData()))
		if send(chunk) != nil || chunk.GetClose() {
			return // Recv has the reason
		}
	}
}

// next returns what is to be sent at an offset; nil if there is nothing yet. Its data is a part of the ring, which is not written again before
// the exec has taken it.
func (t *typing) next(offset int64) (*agboxv1.StdinChunk, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || offset < t.base {
		return nil, t.wait() // an exec has never taken less than it acknowledged
	}
	at := offset % typingRoom
	data := t.ring[at:max(at, min(at+t.end-offset, at+agboxv1.PieceBytes, typingRoom))]
	last := t.eof && offset+int64(len(data)) >= t.end
	if len(data) == 0 && !last {
		return nil, t.wait()
	}
	return &agboxv1.StdinChunk{Offset: offset, Data: data, Close: last}, nil
}
