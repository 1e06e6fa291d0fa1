package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// retry is the pause between tries to reach a daemon that went away. The connection has a back-off of its own; this
// one is for a daemon that accepts connections and then refuses or drops calls.
type retry struct{ next time.Duration }

// wait pauses, longer each time, up to maxPause. It returns the context's error when that ended.
func (r *retry) wait(ctx context.Context) error {
	r.next = min(max(2*r.next, firstPause), maxPause)
	timer := time.NewTimer(r.next/2 + rand.N(r.next/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *retry) reset() { r.next = 0 }
