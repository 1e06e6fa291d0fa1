package clock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox/agbox/internal/host/clockjump"
)

func TestAwakeSinceIsNeverInTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var skew time.Duration
		begun := time.Now()
		c := New(func() clockjump.Reading {
			up := time.Since(begun)
			return clockjump.Reading{Wall: time.Now().Round(0).Add(skew), SinceBoot: up, Awake: up, BootID: "boot"}
		}, func() time.Duration { return 0 }, clockjump.State{})
		for jumps, step := range []time.Duration{time.Hour, -2 * time.Hour, 400 * time.Millisecond, -time.Hour} {
			time.Sleep(time.Minute)
			skew += step
			now := c.Now()
			if c.Read().Awake.After(now) {
				t.Errorf("after a step of %s: awake since %s, now is %s", step, c.Read().Awake, now)
			}
			time.Sleep(time.Minute)
			if c.Now(); jumps == 3 && c.Read().jumps != 3 {
				t.Errorf("%d jumps", c.Read().jumps)
			}
		}
	})
}
