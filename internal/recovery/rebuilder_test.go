package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/internal/recovery/recoverytest"
	"github.com/agbox/agbox/store"
)

// TestAKilledReplayIsRepeatable: kills at each step of a replay, in any order, lose and duplicate no record.
func TestAKilledReplayIsRepeatable(t *testing.T) {
	steps := map[string]func(s *site){
		"aside": func(s *site) { // the old file has its new name
			_, err := store.SetAside(s.Database, time.Now())
			s.Must(err)
		},
		"half a file": func(s *site) {
			_, err := store.SetAside(s.Database, time.Now())
			s.Must(errors.Join(err, os.WriteFile(s.Database+".replay", []byte("half"), 0o600)))
		},
		"new file": func(s *site) { // it has its name, and the log is still of the old one
			_, err := store.SetAside(s.Database, time.Now())
			s.Must(err)
			_, err = store.Recover(s.Context(), store.Options{Path: s.Database, Logger: s.Logger})
			s.Must(err)
		},
		"open":          func(s *site) { s.Die(s.Start()) },
		"lost again":    func(s *site) { s.Must(os.RemoveAll(s.Database)) },
		"emptied again": func(s *site) { s.Must(os.WriteFile(s.Database, nil, 0o600)) },
	}
	for _, deaths := range []string{
		"aside", "half a file", "new file", "open", "aside, aside", "aside, new file", "new file, new file, open", "new file, lost again",
		"open, lost again", "open, lost again, open", "open, emptied again, half a file, new file, lost again", "open, open",
	} {
		s := newSite(t)
		before := s.Live()
		old, err := os.ReadFile(s.Database)
		s.Must(err)
		s.Must(os.WriteFile(s.Database, old[:len(old)/1000], 0o600))
		for _, death := range strings.Split(deaths, ", ") {
			steps[death](s)
		}
		for range 2 {
			records := s.Start()
			if records.RebuildPending() {
				t.Errorf("%s: a rebuild is pending: %s", deaths, s.Said.String())
			}
			s.Same(deaths, records, before)
			s.Die(records)
		}
		if asides := s.Asides(); len(asides) == 0 {
			t.Errorf("%s: nothing is kept", deaths)
		} else if kept, err := os.ReadFile(asides[0]); err != nil || len(kept) != len(old)/1000 {
			t.Errorf("%s: of the old file %d bytes are kept, %v", deaths, len(kept), err)
		}
	}
}

// TestAnIncompleteLogHidesSandboxesUntilTheEngineIsListed: it is then rebuilt once, wherever the daemon dies.
func TestAnIncompleteLogHidesSandboxesUntilTheEngineIsListed(t *testing.T) {
	for _, deaths := range [][]string{{}, {"open"}, {"open", "some"}, {"some", "some", "some"}, {"some", "all"}, {"all", "all"}} {
		s := newSite(t)
		before := s.Live()
		s.CutLog()
		s.Must(os.Remove(s.Database))
		for _, death := range append(deaths, "end") {
			records := s.Start()
			r := s.Rebuilder(records)
			hidden, err := records.Unproven(t.Context())
			s.Must(errors.Join(err, r.FromLog(t.Context())))
			switch death {
			case "some":
				hidden[0].Record.LastSequence += 1000
				_, err := records.RecordRebuilt(t.Context(), hidden[:1])
				s.Must(err)
			case "all", "end":
				if records.RebuildPending() != (r.Sentence() != "") {
					t.Errorf("%v: callers get %q", deaths, r.Sentence())
				}
				r.Finish(t.Context())
			}
			if death == "end" {
				s.wantRebuilt(deaths, records, before)
			}
			s.Die(records)
		}
	}
}

// wantRebuilt checks that every sandbox exists again, and that its history starts with its only rebuild.
func (s *site) wantRebuilt(what any, records *store.Store, before recoverytest.Past) {
	s.Helper()
	hidden, err := records.Unproven(s.Context())
	if err != nil || len(hidden) > 0 || records.RebuildPending() || len(records.LiveIDs()) != len(before.Sandboxes) {
		s.Errorf("%v: live are %v, hidden %v; pending is %t; %v", what, records.LiveIDs(), hidden, records.RebuildPending(), err)
	}
	for id, was := range before.Sandboxes {
		events, err := records.EventsAfter(s.Context(), id, store.Cursor{GapsTo: 1 << 62}, 0)
		if err != nil || len(events) == 0 || events[0].GetEventType() != agboxv1.EventType_SANDBOX_REHYDRATED || events[0].GetSequence() <= was.LastSequence {
			s.Errorf("%v: the events of %s are %v, %v", what, id, events, err)
		}
	}
	for id := range before.Execs {
		if _, err := records.Exec(s.Context(), id); err != nil {
			s.Errorf("%v: exec %s: %v", what, id, err)
		}
	}
}

// TestTheUUIDIsRestoredFromTheLog: the UUID identifies this daemon's objects in the engine.
func TestTheUUIDIsRestoredFromTheLog(t *testing.T) {
	s := newSite(t)
	s.Live()
	former, err := os.ReadFile(s.Instance())
	s.Must(errors.Join(err, os.Remove(s.Instance()), os.Remove(s.Database)))
	records := s.Start()
	if got := records.InstanceIDs(); len(got) != 1 || got[0] != strings.TrimSpace(string(former)) {
		t.Errorf("ours are %v, and before was %s", got, former)
	}
	s.Must(records.Close())
}

// TestARebuildReportsUnreadableObjects: objects of other daemons cause no warnings, however many there are.
func TestARebuildReportsUnreadableObjects(t *testing.T) {
	s := newSite(t)
	records := s.Start()
	fake := dockertest.NewFake()
	defer func() { s.Must(errors.Join(fake.Close(), records.Close())) }()
	fake.AddImage("x", dockerx.Image{})
	for i := range 50 {
		id := fmt.Sprintf("theirs-%d", i)
		_, err := fake.CreateContainer(t.Context(), dockerx.ContainerSpec{Name: naming.Primary(id), Image: "x", Labels: map[string]string{
			naming.SandboxID: id, naming.Component: naming.ComponentPrimary, naming.Instance: "another",
		}})
		s.Must(err)
	}
	r, counted := s.Rebuilder(records), -1
	r.Skipped = func(n int) { counted = n }
	gather := r.Gather
	r.Gather = func() recovery.Gatherer { g := gather(); g.Engine = fake; return g }
	for _, unreadable := range []int{0, 1} {
		fake.Fail(dockerx.OpInspectContainer, 51*unreadable, nil, false) // each once, and one of them twice
		s.Said.Reset()
		s.Must(recovery.FromEngine(r, t.Context()))
		said := s.Said.String()
		if counted < unreadable || strings.Count(said, "left alone by the rebuild") != counted || strings.Contains(said, "count=50") != (unreadable == 0) {
			t.Errorf("%d are counted; the log says %s", counted, said)
		}
	}
}

// trouble is an engine with faults.
type trouble struct {
	mu      sync.Mutex
	away    string
	strange int // number of calls that report another engine identity
}

func (e *trouble) engine() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.away
}

func (e *trouble) same(context.Context, *storev1.EngineRun) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.strange--; e.strange >= 0 {
		return errdefs.ErrUnavailable
	}
	return nil
}

// TestARebuildEndsOnceAnEngineThatIsOursWasListed: it does not end earlier.
func TestARebuildEndsOnceAnEngineThatIsOursWasListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.Live()
		s.Must(errors.Join(os.Remove(s.Database), os.RemoveAll(store.LogDir(s.Database))))
		records := s.Start()
		defer func() { s.Must(records.Close()) }()
		fake := dockertest.NewFake()
		defer func() { s.Must(fake.Close()) }()
		e := &trouble{away: "it is away", strange: 2}
		fake.Fail(dockerx.OpListContainers, 3, nil, false)
		fake.Fail(dockerx.OpListNetworks, 1, nil, false)
		r := s.Rebuilder(records)
		gather := r.Gather
		r.Gather = func() recovery.Gatherer { g := gather(); g.Engine = fake; return g }
		r.Engine, r.SameEngine = e.engine, e.same
		s.Must(r.FromLog(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		r.Finish(canceled(ctx, cancel))
		if !records.RebuildPending() || r.Sentence() == "" {
			t.Error("it has ended with its daemon")
		}
		ended := make(chan struct{})
		go func() { r.Finish(t.Context()); close(ended) }()
		time.Sleep(time.Hour)
		if !records.RebuildPending() || fake.Calls(dockerx.OpListContainers) > 0 {
			t.Error("it has ended without an engine")
		}
		e.mu.Lock()
		e.away = ""
		e.mu.Unlock()
		begun := time.Now()
		<-ended
		if records.RebuildPending() || r.Sentence() != "" {
			t.Error("it has not ended")
		}
		if took := time.Since(begun); took > recovery.RebuildPause {
			t.Errorf("it took %s from the engine's return", took)
		}
		if n := fake.Calls(dockerx.OpListContainers); n != 7 {
			t.Errorf("%d lists; 3 fail, then one is followed by a failing one of networks, 2 are of an engine that is not the same", n)
		}
	})
}

func canceled(ctx context.Context, cancel func()) context.Context { cancel(); return ctx }

func TestLifeStartsWithTheHostOrTheEngine(t *testing.T) {
	boot := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		engine dockerx.Info
		want   time.Time
	}{
		"the engine does not tell":    {dockerx.Info{}, boot},
		"the engine came later":       {dockerx.Info{StartedAt: boot.Add(time.Hour)}, boot.Add(time.Hour)},
		"containers outlive it":       {dockerx.Info{StartedAt: boot.Add(time.Hour), LiveRestore: true}, boot},
		"the clock was set back":      {dockerx.Info{StartedAt: boot.Add(-time.Hour)}, boot},
		"it does not tell, and is so": {dockerx.Info{LiveRestore: true}, boot},
	} {
		if got := recovery.LifeOf(boot, tc.engine); !got.Equal(tc.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	now := time.Now()
	if at := recovery.BootTime(now); at.IsZero() || at.After(now) || at.Before(now.AddDate(-20, 0, 0)) {
		t.Errorf("the host started at %s", at)
	}
}
