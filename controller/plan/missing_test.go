package plan

import (
	"slices"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const doubt = "the engine does not show it"

// known is a healthy sandbox whose objects are recorded.
func known() scene {
	s := healthy()
	s.r.Objects = &storev1.Objects{PrimaryId: "c1", NetworkId: "n1"}
	return s
}

func TestDecideInDoubt(t *testing.T) {
	failedAs := func(s *scene, code string) {
		s.r.State, s.r.ErrorCode, s.r.Progress = bad, code, &storev1.Progress{Missing: true}
	}
	end := func(s *scene, code int) {
		s.w.Containers[0].Status, s.w.Containers[0].ExitCode, s.w.Containers[0].Inspected = "exited", code, true
	}
	recovering := func(s *scene) {
		s.r.State, s.r.Attempt, s.r.Recover = pend, again, true
		end(s, 137)
	}
	for _, row := range []struct {
		name   string
		mutate func(*scene)
		want   string
	}{
		{"primary not seen: no verdict", func(s *scene) { s.w.Containers = nil }, "next:10s"},
		{"network not seen: no verdict", func(s *scene) { s.w.Networks = nil }, "next:10s"},
		{"primary not seen, and idle for too long: nothing", func(s *scene) {
			s.w.Containers, s.r.IdleSince = nil, now.Add(-time.Hour)
		}, "next:10s"},
		{"primary not seen, and its deadline passed: nothing", func(s *scene) {
			s.w.Containers, s.r.DeadlineAt = nil, now.Add(-time.Hour)
		}, "next:10s"},
		{"primary not seen, a double is: neither is removed", func(s *scene) {
			s.w.Containers[0].ID, s.w.Containers[0].Name = "c2", "double"
		}, "next:10s"},
		{"stopped, and not seen: no verdict", func(s *scene) { stopping(s); s.r.State, s.w.Containers = halted, nil }, "next:10s"},
		{"stopped, and two observations don't find it: no verdict", func(s *scene) {
			stopping(s)
			s.r.State, s.w.Containers, s.w.Doubt = halted, nil, ""
		}, ""},
		{"stopped, and its removal was reported: failed", func(s *scene) {
			stopping(s)
			s.r.State, s.w.Containers, s.w.Doubt, s.w.Removed = halted, nil, "", true
		}, "FAILED(CONTAINER_MISSING)"},
		{"paused, and not seen: no verdict", func(s *scene) {
			s.r.Desired, s.r.State, s.w.Containers = storev1.RunState_RUN_STATE_PAUSE, agboxv1.SandboxState_SANDBOX_STATE_PAUSED, nil
		}, "next:10s"},
		{"resumed, and not seen: no verdict", func(s *scene) { s.r.State, s.r.Attempt, s.w.Containers = pend, again, nil }, "next:10s"},
		{"failed as missing, still not seen, cleanup is due: not deleted", func(s *scene) {
			failedAs(s, CodeContainerMissing)
			s.w.Containers, s.p.CleanupTTL, s.r.StateChangedAt = nil, time.Hour, now.Add(-2*time.Hour)
		}, "next:10s"},
		{"failed as missing and proven gone, cleanup is due: deleted", func(s *scene) {
			failedAs(s, CodeContainerMissing)
			s.w.Containers, s.p.CleanupTTL, s.r.StateChangedAt, s.w.Doubt = nil, time.Hour, now.Add(-2*time.Hour), ""
		}, "cleanup"},
		{"a delete waits for no proof", func(s *scene) { s.r.Desired, s.r.State, s.w.Containers, s.w.Networks = del, going, nil, nil },
			"remove-files DELETED"},
		{"nothing is missing: doubt is of no account", func(*scene) {}, "next:29m0s"},

		{"failed as missing, and seen again: withdrawn", func(s *scene) { failedAs(s, CodeContainerMissing) },
			"RECOVERED(verdict_withdrawn)"},
		{"failed as missing while a stop was wanted, and seen again: stopped as before", func(s *scene) {
			stopping(s)
			failedAs(s, CodeContainerMissing)
			end(s, 0)
		}, "RECOVERED(verdict_withdrawn)"},
		{"failed as missing, and another container is seen: not withdrawn", func(s *scene) {
			failedAs(s, CodeContainerMissing)
			s.w.Containers[0].ID, s.w.Containers[0].Status = "c2", "created"
		}, ""},
		{"failed for its network, which is back: withdrawn, and the primary runs on", func(s *scene) { failedAs(s, CodeNetworkMissing) },
			"RECOVERED(verdict_withdrawn)"},
		{"failed for its network, which is proven gone: stopped", func(s *scene) {
			failedAs(s, CodeNetworkMissing)
			s.w.Networks, s.w.Doubt = nil, ""
		}, "stop-container:c1"},
		{"failed for its network, which is not seen: no step", func(s *scene) {
			failedAs(s, CodeNetworkMissing)
			s.w.Networks = nil
		}, "next:10s"},
		{"failed as missing, seen again, and its network is not: no step", func(s *scene) {
			failedAs(s, CodeContainerMissing)
			s.w.Networks = nil
		}, "next:10s"},
		{"failed for its network, which is not seen, and nothing runs: nothing to prove", func(s *scene) {
			failedAs(s, CodeNetworkMissing)
			s.w.Networks, s.w.Containers[0].Status = nil, "exited"
		}, ""},
		{"failed for its network, which is proven gone, and its deadline passes: the verdict stands", func(s *scene) {
			failedAs(s, CodeNetworkMissing)
			s.w.Networks, s.w.Doubt, s.w.Containers[0].Status, s.r.DeadlineAt = nil, "", "exited", now.Add(-time.Minute)
		}, ""},
		{"a create whose hooks ran, and the primary is proven gone: missing, and nothing is removed", func(s *scene) {
			s.r.State, s.w.Containers, s.w.Doubt = pend, nil, ""
			s.r.Progress = &storev1.Progress{PrimaryStarted: true, Released: true, HooksDone: 1}
		}, "FAILED(CONTAINER_MISSING)"},
		{"a create that failed as missing after its hooks, and the primary is seen again: withdrawn", func(s *scene) {
			s.r.State, s.r.Progress = pend, &storev1.Progress{PrimaryStarted: true, Released: true, HooksDone: 1}
			p := Plan{}.judgedMissing(s.r, CodeContainerMissing, "it is missing")
			s.r.State, s.r.ErrorCode, s.r.Progress, s.r.Objects = bad, CodeContainerMissing, p.After.Progress, nil
		}, "RECOVERED(verdict_withdrawn)"},
		{"a resume failed for its primary, which is seen again: it goes on", func(s *scene) {
			failedAs(s, CodeResumeFailed)
			s.r.Attempt = again
			end(s, 0)
		}, "RECOVERED(verdict_withdrawn)"},
		{"failed for something else: not withdrawn", func(s *scene) { s.r.State, s.r.ErrorCode = bad, CodeContainerDied },
			"stop-container:c1"},

		{"renamed: the same container", func(s *scene) { s.w.Containers[0].Name = "other" }, "next:29m0s"},
		{"renamed, of a record without IDs: the same container", func(s *scene) {
			s.r.Objects, s.w.Containers[0].Name = nil, "other"
		}, "next:29m0s"},
		{"renamed, and a double took the name: the double goes", func(s *scene) {
			double := s.w.Containers[0]
			double.ID = "c2"
			s.w.Containers[0].Name = "other"
			s.w.Containers = append(s.w.Containers, double)
		}, "remove-container:c2 next:29m0s"},
		{"disconnected: connected again", func(s *scene) { s.w.Containers[0].NetworkIDs = nil }, "connect-network:c1 next:29m0s"},
		{"several networks, and it is on none: the oldest stays", func(s *scene) {
			s.r.Objects, s.w.Containers[0].NetworkIDs = nil, nil
			s.w.Networks = append(s.w.Networks, Network{ID: "n2", Created: now})
		}, "remove-network:n2 connect-network:c1 next:29m0s"},
		{"several networks, and it is on one that is not seen: none is removed", func(s *scene) {
			s.r.Objects, s.w.Containers[0].NetworkIDs = nil, []string{"n0"}
			s.w.Networks = append(s.w.Networks, Network{ID: "n2", Created: now})
		}, "connect-network:c1 next:29m0s"},

		{"docker stop: taken for a stop", func(s *scene) { end(s, 143) }, "stop-dead"},
		{"docker stop of one with a main process: PID 1 saw the TERM", func(s *scene) {
			end(s, 1)
			s.r.Wanted.Main, s.w.Terminated = true, true
		}, "stop-dead"},
		{"docker stop is no end for the restart policy", func(s *scene) {
			end(s, 0)
			s.r.Wanted.Main, s.r.Wanted.Restart, s.w.Terminated = true, RestartAlways, true
		}, "stop-dead"},
		{"a main process that ends by itself: died", func(s *scene) { end(s, 0); s.r.Wanted.Main = true }, "FAILED(CONTAINER_DIED)"},
		{"docker kill: died", func(s *scene) { end(s, 137) }, "FAILED(CONTAINER_DIED)"},
		{"docker stop of a frozen one: taken for a stop", func(s *scene) {
			s.r.Desired, s.r.State = storev1.RunState_RUN_STATE_PAUSE, agboxv1.SandboxState_SANDBOX_STATE_PAUSED
			end(s, 143)
		}, "stop-dead"},

		{"recover: started again", recovering, "start-container:c1 release:c1 READY life:1"},
		{"recover, and its network is not seen: no step", func(s *scene) { recovering(s); s.w.Networks = nil }, "next:10s"},
		{"recover without its network: made again, connected, started", func(s *scene) {
			recovering(s)
			s.w.Networks, s.w.Doubt = nil, ""
		}, "create-network connect-network:c1 start-container:c1 release:c1 READY life:1"},
		{"recover while the failure stops it: waits", func(s *scene) { recovering(s); s.w.Stopping = []string{"c1"} }, ""},
		{"recover of one that still runs for its failure: stopped first", func(s *scene) {
			recovering(s)
			s.w.Containers[0].Status, s.r.Progress = "running", &storev1.Progress{Stopping: true}
		}, "stop-container:c1"},
		{"recovered, and its network is not seen later: no verdict", func(s *scene) { s.r.Recover, s.w.Networks = true, nil }, "next:10s"},
		{"a resume without recover makes no network", func(s *scene) {
			recovering(s)
			s.r.Recover, s.w.Networks, s.w.Doubt = false, nil, ""
		}, "FAILED(SANDBOX_RESUME_FAILED)"},
		{"recover never makes a container", func(s *scene) { recovering(s); s.w.Containers, s.w.Doubt = nil, "" },
			"FAILED(SANDBOX_RESUME_FAILED)"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := known()
			s.w.Doubt, s.w.ObserveAgain = doubt, 10*time.Second
			row.mutate(&s)
			if got := render(Decide(s.r, s.w, s.p, now)); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

func TestDecideUnswept(t *testing.T) {
	s := healthy()
	if p := Decide(Record{ID: "box1", Standing: Unswept}, s.w, s.p, now); !p.Unknown || len(p.Steps) > 0 {
		t.Errorf("%+v", p)
	}
}

// A delete requested by cleanup_ttl after a verdict of absence keeps running containers and the files that they use.
func TestDecideADeleteForAWrongVerdict(t *testing.T) {
	for _, row := range []struct {
		name   string
		mutate func(*scene)
		want   string
	}{
		{"a container runs: nothing is removed", func(*scene) {}, "DELETED(cleanup_ttl)"},
		{"it is frozen: the same", func(s *scene) { s.w.Containers[0].Status = "paused" }, "DELETED(cleanup_ttl)"},
		{"nothing runs: removed", func(s *scene) { s.w.Containers[0].Status = "exited" }, "remove-container:c1 remove-network:n1 remove-files DELETED(cleanup_ttl)"},
		{"a user asked for it: removed", func(s *scene) { s.r.Reason = "delete_requested" },
			"remove-container:c1 remove-network:n1 remove-files DELETED(delete_requested)"},
		{"it failed otherwise: removed", func(s *scene) { s.r.Progress = nil },
			"remove-container:c1 remove-network:n1 remove-files DELETED(cleanup_ttl)"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := known()
			s.r.Desired, s.r.State = storev1.RunState_RUN_STATE_DELETE, agboxv1.SandboxState_SANDBOX_STATE_DELETING
			s.r.Reason, s.r.Progress = reasonCleanup, &storev1.Progress{Missing: true}
			row.mutate(&s)
			if got := render(Decide(s.r, s.w, s.p, now)); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// TestAWithdrawalRestoresTheStateBefore: a sandbox that was to be stopped or paused, and was not yet, is READY again.
func TestAWithdrawalRestoresTheStateBefore(t *testing.T) {
	const pause, paused = storev1.RunState_RUN_STATE_PAUSE, agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	for _, c := range []struct {
		from    agboxv1.SandboxState
		desired storev1.RunState // when it is withdrawn
		want    agboxv1.SandboxState
	}{
		{ready, run, ready}, {ready, halt, ready}, {ready, pause, ready}, {paused, pause, paused}, {paused, halt, paused}, {halted, halt, halted},
		{paused, run, ready}, {halted, run, ready},
	} {
		s := known()
		s.r.State, s.r.Desired = c.from, c.desired
		p := Plan{}.judgedMissing(s.r, CodeContainerMissing, "it is missing")
		s.r.State, s.r.ErrorCode, s.r.Progress = bad, CodeContainerMissing, p.After.Progress
		p = Decide(s.r, s.w, s.p, now)
		if len(p.Steps) > 0 || len(p.After.Events) != 1 || p.After.Events[0].GetSandboxState() != c.want {
			t.Errorf("from %s, and %s is wanted: %+v", c.from, c.desired, p)
		}
		if p.After.Progress.GetMissing() || p.After.Progress.GetMissingFrom() != 0 {
			t.Errorf("the verdict is left: %v", p.After.Progress)
		}
	}
}

// A record of an earlier version does not name the state before: the desired state is restored.
func TestAWithdrawalRestoresTheStateOfItsIntent(t *testing.T) {
	for desired, want := range map[storev1.RunState]agboxv1.SandboxState{
		run: ready, halt: halted, storev1.RunState_RUN_STATE_PAUSE: agboxv1.SandboxState_SANDBOX_STATE_PAUSED,
	} {
		s := known()
		s.r.Desired, s.r.State, s.r.ErrorCode, s.r.Progress = desired, bad, CodeContainerMissing, &storev1.Progress{Missing: true}
		p := Decide(s.r, s.w, s.p, now)
		if len(p.Steps) > 0 || len(p.After.Events) != 1 || p.After.Events[0].GetSandboxState() != want || p.After.Progress.GetMissing() {
			t.Errorf("%s: %+v", desired, p)
		}
	}
}

// A verdict of absence is recorded with the mark that the part was missing, for every error code.
func TestAVerdictOfAbsenceIsMarked(t *testing.T) {
	s := known()
	s.w.Containers = nil
	for _, state := range []agboxv1.SandboxState{ready, pend} {
		s.r.State, s.r.Attempt = state, again
		if p := Decide(s.r, s.w, s.p, now); !p.After.Progress.GetMissing() || len(p.After.Events) != 1 {
			t.Errorf("%s: %+v", state, p)
		}
	}
}

// A restart after the engine's death lacks a service whose failure has its event: the verdict is not withdrawn and made again.
func TestARecurringVerdictIsNotWithdrawn(t *testing.T) {
	s := served()
	s.r.Objects = &storev1.Objects{PrimaryId: "c1"}
	s.without("db")
	s.container("c1").Status, s.w.Run = "exited", life("b", "2")
	s.r.State, s.r.ErrorCode = bad, CodeContainerNotRunning
	s.r.Progress.Missing, s.r.Progress.Services["db"].Mark = true, toldFailed
	if p := Decide(s.r, s.w, s.p, now); len(p.After.Events) > 0 {
		t.Errorf("%s", render(p))
	}
}

func TestUnseen(t *testing.T) {
	for _, row := range []struct {
		name                 string
		mutate               func(*scene)
		containers, networks []string
	}{
		{"all is there", func(*scene) {}, nil, nil},
		{"no primary: by ID and by name", func(s *scene) { s.w.Containers = nil }, []string{"c1", "agbox-primary-box1"}, nil},
		{"no network: by ID and by name", func(s *scene) { s.w.Networks = nil }, nil, []string{"n1", "agbox-net-box1"}},
		{"a network that only the container knows", func(s *scene) {
			s.r.Objects, s.w.Networks, s.w.Containers[0].NetworkIDs = nil, nil, []string{"n7"}
		}, nil, []string{"n7", "agbox-net-box1"}},
		{"a create that has made nothing", func(s *scene) {
			s.r = Record{ID: "box1", Desired: run, State: pend, Attempt: fresh}
			s.w.Containers, s.w.Networks = nil, nil
		}, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := known()
			row.mutate(&s)
			containers, networks := Unseen(s.r, s.w)
			if !slices.Equal(containers, row.containers) || !slices.Equal(networks, row.networks) {
				t.Errorf("%v and %v, want %v and %v", containers, networks, row.containers, row.networks)
			}
		})
	}
}
