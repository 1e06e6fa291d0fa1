package e2b

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/agbox/agbox/apis/e2b/filesystem"
)

// TestUnpolledWatchersEnd: a poll prolongs the life of a watcher. One that has ended is kept for a while, and polls do not prolong that.
func TestUnpolledWatchersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := newWatchers()
		add := func(run func(context.Context, *watcher)) string {
			id, err := ws.add("box", run)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		stopped := false
		ended := add(func(context.Context, *watcher) {})
		for i := range 4 {
			time.Sleep(endedTTL * 2 / 5)
			if is, want := ws.poll("box", ended) != nil, i < 2; is != want {
				t.Errorf("after %d times two fifths of endedTTL the ended one is there: %t", i+1, is)
			}
		}
		lives := add(func(ctx context.Context, _ *watcher) { <-ctx.Done(); stopped = true })
		for range 3 {
			time.Sleep(watcherTTL - time.Second)
			if ws.poll("box", lives) == nil {
				t.Fatal("it ended although it was polled")
			}
		}
		time.Sleep(watcherTTL + time.Second)
		synctest.Wait()
		if ws.poll("box", lives) != nil || !stopped || len(ws.perBox) > 0 {
			t.Errorf("it lives without polls: stopped %t, %v", stopped, ws.perBox)
		}
		ws.stop()
	})
}

// TestAWatcherHoldsABoundedNumberOfEvents: it gives what it has before it says that others were lost.
func TestAWatcherHoldsABoundedNumberOfEvents(t *testing.T) {
	w, event, held := &watcher{}, &filesystem.FilesystemEvent{Name: strings.Repeat("x", 200)}, 0
	var err error
	for ; err == nil; held++ {
		err = w.hold([]*filesystem.FilesystemEvent{event})
	}
	if held--; connect.CodeOf(err) != connect.CodeResourceExhausted || held != maxHeldBytes/(200+eventBytes) {
		t.Errorf("it holds %d events: %v", held, err)
	}
	w.fail(err)
	if events, err := w.take(); len(events) != held || err != nil {
		t.Errorf("%d events, %v", len(events), err)
	}
	if events, err := w.take(); len(events) > 0 || connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("%d events, %v", len(events), err)
	}
}
