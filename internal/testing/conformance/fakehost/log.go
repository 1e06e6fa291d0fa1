package fakehost

import (
	"os"
	"sync"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// bounded is a log as the shim writes it: up to a limit, and then over is called once and the rest is counted.
type bounded struct {
	file  *os.File
	limit int64 // 0: none
	mark  bool
	over  func()

	mu               sync.Mutex
	written, dropped int64
}

func newBounded(file *os.File, req execjournal.Request, over func()) *bounded {
	return &bounded{file: file, limit: req.LogLimitBytes, mark: req.LogLimitAction == execjournal.LogLimitDrop, over: over}
}

// Write takes everything: a command is never held up by its limit.
func (l *bounded) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := int64(len(p))
	if l.limit > 0 {
		room = min(room, l.limit-l.written)
	}
	if _, err := l.file.Write(p[:room]); err != nil {
		return 0, err
	}
	l.written += room
	first := l.dropped == 0
	if l.dropped += int64(len(p)) - room; l.dropped > 0 && first {
		l.over()
	}
	return len(p), nil
}

// close ends the log with the marker when something was dropped, and returns how much.
func (l *bounded) close() (dropped int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped > 0 && l.mark {
		_, err = l.file.WriteString(execjournal.DroppedMarker(l.limit))
	}
	if closeErr := l.file.Close(); err == nil {
		err = closeErr
	}
	if !l.mark {
		return 0, err
	}
	return l.dropped, err
}
