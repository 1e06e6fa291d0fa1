package plan

import (
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// released is a create whose primary was released a second ago and has not reported yet.
func released(s *scene) {
	creating(s)
	s.r.Progress = &storev1.Progress{PrimaryStarted: true, Released: true}
	c := &s.w.Containers[0]
	c.Inspected, c.Reports, c.StartedAt, c.FinishedAt = true, true, now.Add(-time.Hour), now
	s.w.Start = Start{Since: now.Add(-time.Second)}
}

func TestDecideAwaitsTheStart(t *testing.T) {
	for _, row := range []struct {
		name   string
		mutate func(*scene)
		want   string
		text   string // of the failure
	}{
		{"no report yet", func(*scene) {}, "make-inputs next:59s", ""},
		{"reported", func(s *scene) { s.w.Start.Reported = true }, "make-inputs READY life:1", ""},
		{"a container of an older release", func(s *scene) { s.w.Containers[0].Reports = false }, "make-inputs READY life:1", ""},
		{"the main process was not found", func(s *scene) {
			s.r.Wanted.Main, s.w.Start.Reported, s.w.Start.Error = true, true, `command "x" was not found`
		}, "FAILED(SANDBOX_CREATE_FAILED)", `the main process could not start: command "x" was not found`},
		{"the main process was not found, and the container has ended", func(s *scene) {
			s.r.Wanted.Main, s.w.Start.Reported, s.w.Start.Error = true, true, `command "x" was not found`
			s.w.Containers[0].Status, s.w.Containers[0].ExitCode = "exited", 127
		}, "FAILED(SANDBOX_CREATE_FAILED)", `the main process could not start: command "x" was not found`},
		{"no such user", func(s *scene) { s.w.Start.Reported, s.w.Start.Error = true, `user "x" is not there` },
			"FAILED(SANDBOX_CREATE_FAILED)", `user "x" is not there`},
		{"a resume", func(s *scene) {
			s.r.Attempt, s.w.Start.Reported, s.w.Start.Error = again, true, `user "x" is not there`
		}, "FAILED(SANDBOX_RESUME_FAILED)", `user "x" is not there`},
		{"a report that was not followed by a release is of an earlier run", func(s *scene) {
			s.r.Progress.Released, s.w.Start = false, Start{Reported: true, Error: "x"}
		}, "make-inputs release:c1 life:1 next:1m0s", ""},
		{"never", func(s *scene) { s.w.Start.Since = now.Add(-startWait) },
			"FAILED(SANDBOX_CREATE_FAILED)", "the sandbox did not start within 1m0s"},
		{"the clock jumped: the wait starts over", func(s *scene) {
			s.w.Start.Since, s.p.AwakeSince = now.Add(-startWait), now.Add(-time.Second)
		}, "make-inputs next:59s", ""},
		{"it ended before it reported", func(s *scene) {
			s.r.Wanted.Main, s.w.Containers[0].Status, s.w.Containers[0].ExitCode = true, "exited", 3
		}, "FAILED(SANDBOX_CREATE_FAILED)", "the primary container exited with code 3"},
		{"a main process that ran and ended: READY, and its end is judged next", func(s *scene) {
			s.r.Wanted.Main, s.w.Start.Reported, s.w.Containers[0].Status = true, true, "exited"
		}, "make-inputs READY life:1", ""},
		{"the same without a main process: PID 1 died", func(s *scene) {
			s.w.Start.Reported, s.w.Containers[0].Status, s.w.Containers[0].ExitCode = true, "exited", 2
		}, "FAILED(SANDBOX_CREATE_FAILED)", "the primary container exited with code 2"},
		{"docker stop before READY", func(s *scene) {
			s.w.Containers[0].Status, s.w.Containers[0].ExitCode = "exited", 143
		}, "FAILED(SANDBOX_CREATE_FAILED)", "the primary container was stopped from outside"},
		{"docker stop amid a restart after the engine's death: taken for a stop", func(s *scene) {
			s.r.State, s.r.EngineRun, s.w.Run = ready, life("b", "1"), life("b", "2")
			s.r.Progress.RestartRun = life("b", "2")
			s.w.Containers[0].Status, s.w.Containers[0].ExitCode = "exited", 143
		}, "stop-dead", ""},
		{"an ENTRYPOINT that is the main process ends without a stop", func(s *scene) {
			s.r.State, s.r.EngineRun, s.w.Start = ready, life("b", "1"), Start{Reported: true, Main: true}
			s.w.Containers[0].Status = "exited"
		}, "FAILED(CONTAINER_DIED)", "the primary container exited with code 0"},
		{"a restart by policy that can't start", func(s *scene) {
			s.r.State, s.r.EngineRun, s.r.Wanted.Main = ready, life("b", "1"), true
			s.w.Start.Reported, s.w.Start.Error = true, `command "x" was not found`
			s.w.Containers[0].Status, s.w.Containers[0].ExitCode = "exited", 127
		}, "FAILED(CONTAINER_DIED)", `the main process could not start: command "x" was not found`},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := healthy()
			released(&s)
			row.mutate(&s)
			p := Decide(s.r, s.w, s.p, now)
			if got := render(p); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
			for _, e := range p.After.Events {
				if got := e.GetSandboxPhase().GetErrorMessage(); got != row.text {
					t.Errorf("message %q, want %q", got, row.text)
				}
			}
		})
	}
}
