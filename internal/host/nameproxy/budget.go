package nameproxy

import (
	"errors"
	"sync"
)

// What connections to whose requests headers are added can take in memory, in bytes, measured by TestMemoryIsWhatIsTaken. A connection of HTTP/2 has the
// bodies that clients send before their requests are admitted; a request has the answer that is not read, and both heads, each of which takes several times
// its size; its body is sent from a buffer of the server's frame size, maxScratch at most.
const (
	connBytes    = 256 << 10
	conn2Bytes   = 3 << 20
	requestBytes = answerWindow + 256<<10
	maxScratch   = 512 << 10
	refusalBytes = 128 << 10
)

// errBusy is the answer to requests for which there is no room.
var errBusy = errors.New("agbox: too many requests have headers added at once")

// Budget bounds the memory that the connections of all clients can take to whose requests headers are added. What a connection or a request can take at most
// is taken before it begins.
type Budget struct {
	total, each int64

	mu    sync.Mutex
	taken int64
}

// NewBudget returns a budget in bytes, of all clients and of each.
func NewBudget(total, each int64) *Budget { return &Budget{total: total, each: each} }

// Share returns what one client has of a budget.
func (b *Budget) Share() *Share { return &Share{b: b} }

// Share is what one client has of a budget. nil has no bounds.
type Share struct {
	b     *Budget
	taken int64 // guarded by the budget's mu
}

// level is how much of a budget something may use up.
type level int

const (
	// spare is for what there is a smaller form of: it leaves half of all free.
	spare level = iota
	// usual leaves a quarter of all to clients with firstBytes at most, so that no number of clients shuts out another one.
	usual
	// last is for refusals.
	last
)

const (
	firstBytes = 4 << 20
	// refusals is the part of a budget, beyond all of it, for refusals.
	refusals = 16
)

// take takes n bytes, unless there are none for this level.
func (s *Share) take(n int64, l level) bool {
	if s == nil {
		return true
	}
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	total, each := b.total, b.each
	switch {
	case l == spare:
		total, each = total/2, each/2
	case l == last:
		total, each = total+total/refusals, each+each/refusals
	case s.taken+n > firstBytes:
		total -= total / 4
	}
	if s.taken+n > each || b.taken+n > total {
		return false
	}
	s.taken += n
	b.taken += n
	return true
}

// give gives back what was taken.
func (s *Share) give(n int64) {
	if s == nil {
		return
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.taken -= n
	s.b.taken -= n
}
