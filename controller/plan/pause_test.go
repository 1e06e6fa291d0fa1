package plan

import (
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	hold   = storev1.RunState_RUN_STATE_PAUSE
	paused = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
)

// asked is a sandbox whose pause was just accepted.
func asked(s *scene) {
	s.r.Desired, s.r.Reason, s.r.RequestedAt, s.r.IdleSince = hold, "pause_requested", now, time.Time{}
}

// frozen is a sandbox that has been frozen for an hour.
func frozen(s *scene) {
	asked(s)
	s.r.State, s.r.StateChangedAt = paused, now.Add(-time.Hour)
	for i := range s.w.Containers {
		s.w.Containers[i].Status = "paused"
	}
	s.r.Progress = frozenProgress(s.r.Progress, mineOf(*s))
	s.p.FreezeDuration, s.p.StoppedGCAfter = 24*time.Hour, 720*time.Hour
}

// committing is a sandbox whose snapshot is being made, for which it is frozen.
func committing(s *scene) { s.w.Committing, s.container("c1").Status = true, "paused" }

func mineOf(s scene) parts { mine, _ := split(s.r, s.w); return mine }

// givenUp is a frozen sandbox that was demoted a minute ago and is not down yet.
func givenUp(s *scene) {
	frozen(s)
	s.r.DemotedAt = now.Add(-time.Minute)
	s.r.Progress.Frozen, s.r.Progress.Stopping = false, true
}

// demotedDown is a demoted sandbox that is down and whose event is recorded.
func demotedDown(s *scene) {
	givenUp(s)
	s.r.Progress = &storev1.Progress{HooksDone: 1}
	for i := range s.w.Containers {
		s.w.Containers[i].Status = "exited"
	}
}

// back is the resume of a paused sandbox.
func back(s *scene) {
	s.r.Desired, s.r.Reason, s.r.State, s.r.Attempt, s.r.DemotedAt = run, "", pend, again, time.Time{}
}

func all(mutations ...func(*scene)) func(*scene) {
	return func(s *scene) {
		for _, m := range mutations {
			m(s)
		}
	}
}

func TestDecideAPause(t *testing.T) {
	exited := func(s *scene) { s.w.Containers[0].Status, s.w.Containers[0].ExitCode = "exited", 137 }
	newLife := func(s *scene) { s.w.Run = life("b", "2") }
	for _, row := range []struct {
		name   string
		from   func() scene
		mutate func(*scene)
		want   string
	}{
		{"pause: freeze, then tell", healthy, asked, "pause-container:c1 PAUSED(pause_requested) life:1"},
		{"pause with services: the primary first", served, asked,
			"pause-container:c1 pause-container(db):db pause-container(mq):mq pause-container(opt):opt PAUSED(pause_requested) life:1"},
		{"a pause that was cut off goes on", served, all(asked, func(s *scene) {
			s.container("c1").Status, s.container("db").Status = "paused", "paused"
		}), "pause-container(mq):mq pause-container(opt):opt PAUSED(pause_requested) life:1"},
		{"a pause of which only the telling is left", healthy, all(asked, func(s *scene) { s.container("c1").Status = "paused" }),
			"PAUSED(pause_requested) life:1"},
		{"a service that is down is left", served, all(asked, func(s *scene) { s.container("db").Status = "exited" }),
			"pause-container:c1 pause-container(mq):mq pause-container(opt):opt PAUSED(pause_requested) life:1"},
		{"pause of one without a primary", healthy, all(asked, func(s *scene) { s.w.Containers = nil }), "FAILED(CONTAINER_MISSING)"},
		{"a primary that ended before it was frozen", healthy, all(asked, exited), "FAILED(CONTAINER_DIED)"},
		{"a freeze that is refused is tried again", healthy, all(asked, func(s *scene) { s.r.Tries = freezeTries - 1 }),
			"pause-container:c1 PAUSED(pause_requested) life:1"},
		{"a freeze that is refused for long becomes a stop", healthy, all(asked, func(s *scene) { s.r.Tries = freezeTries }), "demote"},

		{"frozen: nothing, until it is demoted", served, frozen, "next:23h0m0s"},
		{"frozen for long", served, all(frozen, func(s *scene) { s.r.StateChangedAt = now.Add(-24 * time.Hour) }), "demote"},
		{"too many are frozen", served, all(frozen, func(s *scene) { s.r.OverFrozen = true }), "demote"},
		{"frozen forever", served, all(frozen, func(s *scene) { s.p.FreezeDuration = 0 }), ""},
		{"frozen past its deadline: not acted on", served, all(frozen, func(s *scene) { s.r.DeadlineAt = now.Add(-time.Hour) }), "next:23h0m0s"},
		{"thawed from outside", served, all(frozen, func(s *scene) { s.container("c1").Status = "running" }), "pause-container:c1 next:23h0m0s"},
		{"frozen and killed", healthy, all(frozen, exited), "FAILED(CONTAINER_DIED)"},
		{"frozen, then the engine died", healthy, all(frozen, exited, newLife), "stop-dead"},
		{"frozen, then the host died", healthy, all(frozen, exited, func(s *scene) { s.w.Run = life("c", "2") }), "stop-dead"},
		{"frozen, and the engine does not tell of its life", healthy, all(frozen, exited, func(s *scene) { s.w.Run = life("b", "") }), "next:10s"},
		{"frozen containers outlive the engine", healthy, all(frozen, newLife), "life:2 next:23h0m0s"},
		{"frozen with a running exec: it stays", healthy, all(frozen, func(s *scene) { s.r.ActiveExecs = 1 }), "next:23h0m0s"},

		{"demoted: stop the primary", served, givenUp, "stop-container:c1"},
		{"demoted with execs: thaw, and let them end", served, all(givenUp, func(s *scene) { s.r.ActiveExecs, s.r.DemotedAt = 1, now }),
			"cancel-execs unpause-container:c1 next:40s"},
		{"demoted with execs that ignore signals", served, all(givenUp, func(s *scene) { s.r.ActiveExecs, s.r.DemotedAt = 1, now.Add(-time.Hour) }),
			"cancel-execs stop-container:c1"},
		{"demoted: then the services", served, all(givenUp, func(s *scene) { s.container("c1").Status = "exited" }),
			"stop-container(db):db stop-container(mq):mq stop-container(opt):opt"},
		{"demoted and down: told", healthy, all(givenUp, exited), "PAUSED(demoted)"},
		{"demoted before it was ever frozen", healthy, all(givenUp, exited, func(s *scene) { s.r.State = ready }), "PAUSED(demoted)"},
		{"demoted, down and told: nothing, until it is deleted", healthy, demotedDown, "next:719h59m0s"},
		{"demoted for long", healthy, all(demotedDown, func(s *scene) { s.r.DemotedAt = now.Add(-720 * time.Hour) }), "pause-cleanup"},
		{"demoted for long, and kept", healthy, all(demotedDown, func(s *scene) { s.r.DemotedAt, s.r.KeepStopped = now.Add(-720*time.Hour), true }), ""},
		{"demoted forever", healthy, all(demotedDown, func(s *scene) { s.p.StoppedGCAfter = 0 }), ""},
		{"demoted, then the engine died: nothing", healthy, all(demotedDown, newLife), "next:719h59m0s"},
		{"demoted, and started from outside", healthy, all(demotedDown, func(s *scene) { s.container("c1").Status = "running" }), "stop-container:c1"},
		{"demoted, and its primary was removed", healthy, all(demotedDown, func(s *scene) { s.w.Containers = nil }), "FAILED(CONTAINER_MISSING)"},

		{"resume of a frozen one: services first", served, all(frozen, back),
			"unpause-container(db):db unpause-container(mq):mq unpause-container(opt):opt unpause-container:c1 READY life:1"},
		{"resume of one that the engine calls running: thawed all the same", healthy, all(frozen, back, func(s *scene) { s.container("c1").Status = "running" }),
			"unpause-container:c1 READY life:1"},
		{"resume of one that was recorded thawed and is still frozen", healthy, all(frozen, back, func(s *scene) {
			s.r.Progress.Frozen, s.r.Progress.Thawed = false, true
		}), "unpause-container:c1 READY life:1"},
		{"resume of a frozen one: an unhealthy service is as before", served, all(frozen, back, func(s *scene) { s.container("db").Health = verdictBad }),
			"unpause-container(db):db unpause-container(mq):mq unpause-container(opt):opt unpause-container:c1 READY life:1"},
		{"resume of a frozen one whose service died: it starts over", served, all(frozen, back, func(s *scene) { s.container("db").Status = "exited" }),
			"recorded unpause-container(mq):mq unpause-container(opt):opt unpause-container:c1 start-container(db):db life:1 next:2m0s"},
		{"resume of a frozen one that the engine's death took along: started", healthy, all(frozen, back, exited, newLife),
			"recorded start-container:c1 release:c1 life:2 next:1m0s"},
		{"resume of a demoted one that is not down: first the stop ends", served, all(givenUp, back), "stop-container:c1"},
		{"resume of a demoted one that has come down: started", healthy, all(givenUp, back, exited), "recorded start-container:c1 release:c1 life:1 next:1m0s"},
		{"resume of a demoted one", healthy, all(demotedDown, back), "start-container:c1 release:c1 life:1 next:1m0s"},

		{"stop of a frozen one", served, all(frozen, stopping, func(s *scene) { s.r.State = paused }), "stop-container:c1"},
		{"stop of a frozen one with execs: thaw, and let them end", served, all(frozen, stopping, func(s *scene) { s.r.State, s.r.ActiveExecs = paused, 1 }),
			"cancel-execs unpause-container:c1 next:40s"},
		{"stop of a demoted one", healthy, all(demotedDown, stopping, func(s *scene) { s.r.State = paused }), "STOPPED(stop_requested)"},
		{"delete of a frozen one", healthy, all(frozen, deleting), "remove-container:c1 remove-network:n1 remove-files DELETED(delete_requested)"},

		{"its time is up", healthy, func(s *scene) { s.r.DeadlineAt = now }, "expire"},
		{"its time is up while something is wrong with it", healthy, func(s *scene) { s.r.DeadlineAt, s.w.Run = now, life("b", "") }, "expire"},
		{"its time is up soon", healthy, func(s *scene) { s.r.DeadlineAt = now.Add(time.Second) }, "next:1s"},
		{"its time is up before it is READY: not acted on", healthy, all(resuming, func(s *scene) { s.r.DeadlineAt = now.Add(-time.Hour) }),
			"start-container:c1 release:c1 life:1 next:1m0s"},
		{"a running one was frozen from outside", healthy, func(s *scene) { s.container("c1").Status = "paused" }, "unpause-container:c1 next:29m0s"},
		{"its commit froze a running one", healthy, committing, "next:29m0s"},
		{"pause amid a commit: it waits, because the end of the commit thaws", healthy, all(asked, committing), ""},
		{"pause amid a commit that has not frozen it yet", healthy, all(asked, func(s *scene) { s.w.Committing = true }), ""},
		{"stop amid a commit", healthy, all(committing, stopping), "stop-container:c1"},
		{"delete amid a commit", healthy, all(committing, deleting), "remove-container:c1 remove-network:n1 remove-files DELETED(delete_requested)"},
		{"docker unpause of a frozen one amid its commit", healthy, all(frozen, func(s *scene) { s.w.Committing, s.container("c1").Status = true, "running" }), "next:23h0m0s"},
		{"commit of a frozen one", healthy, all(frozen, func(s *scene) { s.w.Committing = true }), "next:23h0m0s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := row.from()
			row.mutate(&s)
			if got := render(Decide(s.r, s.w, s.p, now)); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}
