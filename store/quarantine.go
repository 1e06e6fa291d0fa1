package store

import (
	"log/slog"
	"slices"
	"sync"
)

// maxCorrupt limits the list; more damage gives no new information.
const maxCorrupt = 1000

// quarantine collects the records that do not decode. Each is logged once and stays unchanged in the file.
type quarantine struct {
	log  *slog.Logger
	mu   sync.Mutex
	seen map[[2]string]bool
	list []Corrupt
}

func newQuarantine(log *slog.Logger) *quarantine {
	return &quarantine{log: log, seen: map[[2]string]bool{}}
}

func (q *quarantine) add(c Corrupt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := [2]string{c.Bucket, c.Key}
	if q.seen[at] || len(q.list) >= maxCorrupt {
		return
	}
	q.seen[at] = true
	q.list = append(q.list, c)
	q.log.Error("record does not decode; it is kept as it is", "bucket", c.Bucket, "key", c.Key,
		"sandbox_id", c.SandboxID, "err", c.Err)
}

// Corrupt returns the records found so far that do not decode: at Open those of live sandboxes, later those found by reads. At most 1000.
func (s *Store) Corrupt() []Corrupt {
	s.corrupt.mu.Lock()
	defer s.corrupt.mu.Unlock()
	return slices.Clone(s.corrupt.list)
}
