package acp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
)

// maxUnread bounds the bytes queued for an agent that sends requests and reads no responses.
const maxUnread = 16 << 20

var errUnread = errors.New("the agent does not read its stdin: more than 16 MiB are queued")

// Run relays between the inbox and an agent until the agent closes its stdout, the normal end, and then returns nil. The agent's
// output is written to log before it is handled. toAgent is closed when the inbox ends and when Run returns, so possibly
// twice. Errors: ErrSession; those of log and of fromAgent; one for an agent that does not read. An error of inbox is treated as
// its end; an agent that closed its stdin is expected to exit. After an error the caller closes inbox and fromAgent, since a
// goroutine may still read them.
func Run(o Options, inbox io.Reader, toAgent io.WriteCloser, fromAgent io.Reader, log io.Writer) error {
	client, out := New(o), newQueue()
	written := make(chan struct{})
	go func() {
		defer close(written)
		out.drain(toAgent)
	}()
	defer func() { <-written }()
	defer toAgent.Close() // unblocks a pending write
	defer out.close()

	if err := out.put(client.Start()); err != nil {
		return err
	}
	var mu sync.Mutex // guards client
	go func() {
		defer out.close()
		_ = eachLine(inbox, func(line []byte) error {
			mu.Lock()
			defer mu.Unlock()
			return out.put(client.FromInbox(line))
		})
	}()
	return eachLine(io.TeeReader(fromAgent, log), func(line []byte) error {
		mu.Lock()
		defer mu.Unlock()
		reply, err := client.FromAgent(line)
		return errors.Join(err, out.put(reply))
	})
}

// eachLine calls fn for each complete line of at most MaxLine bytes, until the end, which is nil, or an error of either side.
func eachLine(in io.Reader, fn func([]byte) error) error {
	r := bufio.NewReaderSize(in, 64<<10)
	var line []byte
	long := false
	for {
		piece, err := r.ReadSlice('\n')
		if long = long || len(line)+len(piece) > MaxLine; long {
			line = line[:0]
		} else {
			line = append(line, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if !long {
			if err := fn(bytes.TrimSpace(line)); err != nil {
				return err
			}
		}
		line, long = line[:0], false
	}
}

// queue buffers writes, so that reading never blocks on an agent that does not read.
type queue struct {
	mu     sync.Mutex
	more   *sync.Cond
	data   []byte
	closed bool
}

func newQueue() *queue {
	q := &queue{}
	q.more = sync.NewCond(&q.mu)
	return q
}

func (q *queue) put(data []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(data) == 0 || q.closed {
		return nil
	}
	if len(q.data)+len(data) > maxUnread {
		return errUnread
	}
	q.data = append(q.data, data...)
	q.more.Signal()
	return nil
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.more.Signal()
}

// next waits for data to write; nil after the last.
func (q *queue) next() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.data) == 0 && !q.closed {
		q.more.Wait()
	}
	data := q.data
	q.data = nil
	return data
}

// drain writes until the queue is closed and empty, or a write fails, and closes w.
func (q *queue) drain(w io.WriteCloser) {
	defer w.Close()
	for data := q.next(); len(data) > 0; data = q.next() {
		if _, err := w.Write(data); err != nil {
			q.close()
			return
		}
	}
}
