package plan

import (
	"strings"
	"testing"
	"time"
)

// After a jump of the clock no deadline is acted on; everything else continues.
func TestNoDeadlineIsActedOnWhileTheClockIsNotBelieved(t *testing.T) {
	for _, row := range []struct {
		name       string
		change     func(*scene)
		acts, held string
		kind       string // the deadline named in the held wait
	}{
		{"idle", func(s *scene) { s.r.IdleSince = now.Add(-time.Hour) }, "stop-idle", "next:5m0s", "idle_ttl"},
		{"expired", func(s *scene) { s.r.DeadlineAt = now }, "expire", "next:5m0s", "timeout"},
		{"expired, and limits are pending", func(s *scene) { s.r.DeadlineAt = now.Add(-time.Hour); s.r.LimitsPending = true },
			"expire", "| applied next:5m0s", "timeout"},
		{"stopped for long", func(s *scene) {
			s.r.Desired, s.r.State, s.r.StateChangedAt, s.p.CleanupTTL = halt, halted, now.Add(-2*time.Hour), time.Hour
			s.container("c1").Status = "exited"
		}, "cleanup", "next:5m0s", "cleanup_ttl"},
		{"failed for long", func(s *scene) {
			s.r.State, s.r.StateChangedAt, s.p.CleanupTTL = bad, now.Add(-2*time.Hour), time.Hour
			s.container("c1").Status = "exited"
		}, "cleanup", "next:5m0s", "cleanup_ttl"},
		{"frozen for long", all(frozen, func(s *scene) { s.r.StateChangedAt = now.Add(-24 * time.Hour) }), "demote", "next:5m0s", "freeze_duration"},
		{"demoted for long", all(demotedDown, func(s *scene) { s.r.DemotedAt = now.Add(-720 * time.Hour) }), "pause-cleanup", "next:5m0s", "stopped_gc_after"},
		{"too many are frozen, which is no matter of time", all(frozen, func(s *scene) { s.r.OverFrozen = true }), "demote", "demote", ""},
		{"asked to be deleted", func(s *scene) { s.r.Desired, s.r.State, s.w = del, going, World{} }, "remove-files DELETED", "remove-files DELETED", ""},
		{"due later, and sooner than the clock is believed", func(s *scene) { s.r.DeadlineAt = now.Add(time.Minute) }, "next:1m0s", "next:1m0s", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := healthy()
			row.change(&s)
			if got := render(Decide(s.r, s.w, s.p, now)); got != row.acts {
				t.Errorf("by a clock that is believed: %s, want %s", got, row.acts)
			}
			s.p.Hold = 5 * time.Minute
			p := Decide(s.r, s.w, s.p, now)
			if got := render(p); got != row.held || row.kind != "" && !strings.HasPrefix(p.Waiting, row.kind+" has passed, but the host's clock") {
				t.Errorf("held: %s, waiting %q; want %s", got, p.Waiting, row.held)
			}
		})
	}
}

// A wait of a request gets its full time, counted from the jump: a jump shortens no stop and no delete, and prolongs none by much.
func TestAJumpOfTheClockCutsNoStopShort(t *testing.T) {
	jump := func(s *scene) { s.p.Hold, s.p.AwakeSince = 5*time.Minute, now.Add(-10*time.Second) }
	busy := func(s *scene) { s.r.Agents, s.r.Turns, s.r.ActiveExecs = true, 1, 1 }
	for _, row := range []struct {
		name   string
		change func(*scene)
		want   string
	}{
		{"a stop, two days ago by the clock", all(stopping, func(s *scene) { s.r.ActiveExecs, s.r.RequestedAt = 1, now.Add(-48*time.Hour) }, jump), "cancel-execs next:30s"},
		{"a stop of two days ago, by a clock that is believed", all(stopping, func(s *scene) {
			s.r.ActiveExecs, s.r.RequestedAt = 1, now.Add(-48*time.Hour)
		}), "cancel-execs stop-container:c1"},
		{"a stop, and the jump was long ago", all(stopping, func(s *scene) {
			s.r.ActiveExecs, s.r.RequestedAt = 1, now.Add(-48*time.Hour)
			jump(s)
			s.p.AwakeSince = now.Add(-time.Minute)
		}), "cancel-execs stop-container:c1"},
		{"a stop by a clock that was ahead and is back", all(stopping, func(s *scene) {
			s.r.ActiveExecs, s.r.RequestedAt, s.p.AwakeSince = 1, now.Add(48*time.Hour), now.Add(-10*time.Second)
		}), "cancel-execs next:30s"},
		{"a stop after the jump", all(stopping, func(s *scene) {
			s.r.ActiveExecs = 1
			jump(s)
			s.r.RequestedAt = now.Add(-5 * time.Second)
		}), "cancel-execs next:35s"},
		{"a delete with a turn, two days ago by the clock", all(deleting, busy, func(s *scene) { s.r.RequestedAt = now.Add(-48 * time.Hour) }, jump),
			"cancel-execs next:1m0s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := healthy()
			row.change(&s)
			if got := render(Decide(s.r, s.w, s.p, now)); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
		})
	}
}
