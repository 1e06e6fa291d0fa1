package store

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadlinesInABubble: other packages use the real store under synctest's clock.
func TestDeadlinesInABubble(t *testing.T) {
	o := testOptions(t)
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(ctx, o)
		must(t, err)
		defer func() { must(t, s.Close()) }()
		makeReady(t, s, "box")
		changed, stop := s.Watch("box")
		defer stop()
		go func() {
			time.Sleep(time.Hour)
			if ok, err := s.RequestIdleStop(ctx, "box", time.Hour, s.moment()); !ok || err != nil {
				t.Errorf("idle stop after an hour: %v, %v", ok, err)
			}
		}()
		if ok, err := s.RequestIdleStop(ctx, "box", time.Hour, s.moment()); ok || err != nil {
			t.Errorf("idle stop at once: %v, %v", ok, err)
		}
		<-changed
		synctest.Wait()
	})
}
