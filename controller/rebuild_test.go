package controller_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// copyOf returns a sandbox's record as its record file has it.
func (p *player) copyOf(t *testing.T, id string) store.Rebuilt {
	t.Helper()
	sb := p.sandbox(t, id)
	return store.Rebuilt{Record: &storev1.SandboxRecord{
		Version: 1, SandboxId: id, Instance: p.store.InstanceID(), CreatedAt: sb.CreatedAt.UnixNano(), Spec: sb.Spec, Desired: sb.Desired,
		Progress: sb.Progress, State: int32(sb.State), StateChangedAt: sb.StateChangedAt.UnixNano(), LastSequence: sb.LastSequence,
	}}
}

// loseStore kills the daemon and replaces the database by a new one, with some rebuilt records.
func (p *player) loseStore(t *testing.T, instance string, records ...store.Rebuilt) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(p.kill())
	path := filepath.Join(p.dir, "ids.db")
	ok(os.Remove(path))
	s, err := store.Open(t.Context(), store.Options{
		Path: path, InitialMmapSize: 1 << 20, Logger: quiet(), Now: p.now, Instance: instance, Rebuild: true,
	})
	ok(err)
	recordRebuilt(t, s, records)
	ok(s.Close())
}

func recordRebuilt(t *testing.T, s *store.Store, records []store.Rebuilt) {
	t.Helper()
	var former []string
	for _, r := range records {
		former = append(former, r.Record.GetInstance())
	}
	if err := s.RememberInstances(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RecordRebuilt(t.Context(), records); err != nil {
		t.Fatal(err)
	}
}

// No rebuilt record may be judged by an engine that never held its objects, and nothing may count as gone because of that engine.
func TestAnotherEngineIsKnownWhileRecordsAreRebuilt(t *testing.T) {
	for name, tc := range map[string]struct{ instance, record bool }{
		"all but the database is there":       {true, true},
		"the instance is lost too":            {false, true},
		"the record files are lost too":       {true, false},
		"only the sandboxes' files are there": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, replaced := range []bool{false, true} {
				withDaemon(t, func(t *testing.T, p *player) {
					id := p.readyBox(t)
					var records []store.Rebuilt
					if tc.record {
						records = append(records, p.copyOf(t, id))
					}
					instance := ""
					if tc.instance {
						instance = p.store.InstanceID()
					}
					p.loseStore(t, instance, records...)
					if replaced {
						p.engine.Replace()
					}
					if err := p.start(-1); err != nil {
						t.Fatal(err)
					}
					pass(5 * time.Minute)
					if got := p.daemon.EngineProblem(); strings.Contains(got, "another Docker engine") != replaced || (got == "") == replaced {
						t.Errorf("replaced: %t, and the problem is %q", replaced, got)
					}
					run, _ := p.daemon.EngineRun()
					if err := p.daemon.SameEngine(t.Context(), run); (err != nil) != replaced {
						t.Errorf("replaced: %t, and it is the same: %v", replaced, err)
					}
					if tc.record {
						p.wantState(t, id, ready)
					}
				})
			}
		})
	}
}

// If all sandboxes were deleted before the database was lost, a new engine can lack nothing.
func TestAnyEngineWillDoWhereNoSandboxCanBe(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.readyBox(t)
		p.must(t, act{"delete", 0})
		pass(time.Minute)
		p.loseStore(t, p.store.InstanceID())
		p.engine.Replace()
		if err := p.start(-1); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if got := p.daemon.EngineProblem(); got != "" {
			t.Errorf("the problem is %q", got)
		}
	})
}

// A record that was rewritten after a rebuild names the store of that time, while the containers may name an earlier one: until the rebuild
// has found that out, a sandbox seems to have no containers.
func TestNothingIsMissingOrGoneWhileRecordsAreRebuilt(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		kept, deleted := p.readyBox(t), p.readyBox(t)
		former := p.store.InstanceID()
		records := []store.Rebuilt{p.copyOf(t, kept), p.copyOf(t, deleted)}
		for _, r := range records {
			r.Record.Instance = ""
		}
		p.loseStore(t, "", records...)
		if err := p.start(-1); err != nil {
			t.Fatal(err)
		}
		if _, err := p.store.RequestDelete(t.Context(), deleted, "test"); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Minute)
		p.wantState(t, kept, ready)
		p.wantState(t, deleted, agboxv1.SandboxState_SANDBOX_STATE_DELETING)
		if err := errors.Join(p.store.RememberInstances(t.Context(), []string{former}), p.store.RebuildDone(t.Context())); err != nil {
			t.Fatal(err)
		}
		p.daemon.ResyncRebuilt()
		pass(time.Minute)
		p.wantState(t, kept, ready)
		p.wantState(t, deleted, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
		for _, c := range p.engine.Containers() {
			if c.Labels[naming.SandboxID] == deleted {
				t.Errorf("container %s is left", c.Name)
			}
		}
	}, func(c *controller.Config) { c.ResyncInterval = time.Hour })
}

// The engine's events were subscribed to before it was known that there are objects of a former instance.
func TestEventsOfLaterRebuiltSandboxesAreFollowed(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		record := p.copyOf(t, id)
		p.loseStore(t, "")
		if err := p.start(-1); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		recordRebuilt(t, p.store, []store.Rebuilt{record})
		if err := p.store.RebuildDone(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.daemon.ResyncRebuilt()
		pass(time.Minute)
		p.wantState(t, id, ready)
		p.must(t, act{"kill box", 0})
		pass(time.Minute)
		p.wantState(t, id, failed)
	}, func(c *controller.Config) { c.ResyncInterval = time.Hour })
}

func TestAnEngineThatWasRestartedMeanwhileIsNotTheSame(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		run, info := p.daemon.EngineRun()
		if run.GetEngineStart() == "" || info.Run != run.GetEngineStart() {
			t.Errorf("%v, %+v", run, info)
		}
		if err := p.daemon.SameEngine(t.Context(), run); err != nil {
			t.Error(err)
		}
		p.engine.RestartEngine(true)
		if err := p.daemon.SameEngine(t.Context(), run); err == nil {
			t.Error("it is taken for the same")
		}
	})
}
