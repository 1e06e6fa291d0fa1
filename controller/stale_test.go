package controller_test

import (
	"testing"
	"time"
)

// Docker 20.10 sends the event of a container's end before its lists show the end. The pass that the event enqueues must not trust the
// list, because no other pass runs until the next resync.
func TestAnEndIsSeenAlthoughTheListLagsBehindItsEvent(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.engine.ListLag = time.Second
		p.must(t, act{"create", 0})
		pass(2 * time.Second)
		p.must(t, act{"kill box", 0})
		pass(2 * time.Second) // far less than the interval of resyncs
		p.wantState(t, p.box(0), failed)
	})
}

// The same for an end just before a daemon's start: its event may be older than the subscription, and the first list lags.
func TestAnEndJustBeforeTheStartIsSeenAlthoughTheListLags(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.engine.ListLag = time.Second
		p.must(t, act{"create", 0})
		pass(2 * time.Second)
		if err := p.kill(); err != nil {
			t.Fatal(err)
		}
		p.must(t, act{"kill box", 0})
		pass(10 * time.Millisecond)
		if err := p.start(-1); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		p.wantState(t, p.box(0), failed)
	})
}
