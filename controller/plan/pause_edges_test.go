package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// deadAgain is a sandbox that was thawed in this run and whose containers the engine's death has ended since.
func deadAgain(s *scene) {
	s.r.Progress.Thawed = true
	s.w.Run = life("b", "2")
	for i := range s.w.Containers {
		s.w.Containers[i].Status, s.w.Containers[i].Health = "exited", ""
	}
}

func TestARestartAfterAThawWaitsForHealth(t *testing.T) {
	for name, state := range map[string]func(*scene){
		"ready": func(*scene) {}, "being resumed": func(s *scene) { s.r.State, s.r.Attempt = pend, again },
	} {
		t.Run(name, func(t *testing.T) {
			s := served()
			deadAgain(&s)
			state(&s)
			first := Decide(s.r, s.w, s.p, now)
			if got := render(first); !strings.Contains(got, "start-container(db):db") {
				t.Fatalf("the first pass: %s", got)
			}
			s.r.Progress = proto.CloneOf(first.After.Progress)
			if first.After.EngineRun != nil {
				s.r.EngineRun = first.After.EngineRun
			}
			s.container("db").Status, s.container("db").Health = "running", "starting"
			if got := render(Decide(s.r, s.w, s.p, now)); strings.Contains(got, "start-container(mq)") || strings.Contains(got, ":c1") {
				t.Errorf("the next one started before db was healthy: %s", got)
			}
		})
	}
}

func TestAFailingTimeoutPauseNeverBecomesAStop(t *testing.T) {
	s := healthy()
	asked(&s)
	s.r.Reason, s.r.Tries = "timeout", 100*freezeTries
	if got, want := render(Decide(s.r, s.w, s.p, now)), "pause-container:c1 PAUSED(timeout) life:1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAPauseDuringRestartBackoffDoesNotFail(t *testing.T) {
	for _, row := range []struct {
		name   string
		mutate func(*scene)
		want   string
	}{
		{"its policy would bring it back", func(*scene) {}, "demote"},
		{"it ended well, and is restarted on failures only", func(s *scene) {
			s.r.Wanted.Restart, s.w.Containers[0].EndedWell = RestartOnFailure, true
		}, "FAILED(CONTAINER_DIED)"},
		{"it was frozen when it died", func(s *scene) { s.r.State = paused }, "FAILED(CONTAINER_DIED)"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := healthy()
			asked(&s)
			c := &s.w.Containers[0]
			c.Status, c.ExitCode, c.FinishedAt, s.r.Wanted.Restart = "exited", 1, now.Add(-time.Second), RestartAlways
			row.mutate(&s)
			if got := render(Decide(s.r, s.w, s.p, now)); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// TestAPauseDuringARestartLeavesTheReleaseToTheResume: the daemon died between the start of the primary and its release.
func TestAPauseDuringARestartLeavesTheReleaseToTheResume(t *testing.T) {
	s := healthy()
	s.r.Wanted.Main = true
	s.r.Desired, s.r.Progress = storev1.RunState_RUN_STATE_PAUSE, &storev1.Progress{PrimaryStarted: true, RestartRun: s.w.Run}
	p := Decide(s.r, s.w, s.p, now)
	if got := p.After.Progress; !got.GetFrozen() || got.GetReleased() {
		t.Fatalf("it is frozen with %v", got)
	}
	s.r.State, s.r.Progress = agboxv1.SandboxState_SANDBOX_STATE_PENDING, p.After.Progress
	s.r.Desired, s.r.Attempt = run, again
	s.w.Containers[0].Status = "paused"
	if got := Decide(s.r, s.w, s.p, now).Steps; !slices.ContainsFunc(got, func(s Step) bool { return s.Kind == Release }) {
		t.Errorf("the resume runs %v", got)
	}
}
