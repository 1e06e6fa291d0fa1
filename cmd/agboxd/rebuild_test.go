package main

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
	"github.com/agbox/agbox/internal/recordfile"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/store"
)

// TestAStartThatDiesAnywhereGoesOn: a kill at each step of a rebuild, in whatever order, loses and doubles nothing.
func TestAStartThatDiesAnywhereGoesOn(t *testing.T) {
	steps := map[string]func(s *site){
		"aside": func(s *site) { // the old file has its new name
			_, err := store.SetAside(s.paths.Database, time.Now())
			s.must(err)
		},
		"half a file": func(s *site) {
			_, err := store.SetAside(s.paths.Database, time.Now())
			s.must(errors.Join(err, os.WriteFile(s.paths.Database+".new", []byte("half"), 0o600)))
		},
		"new file": func(s *site) { s.die(s.open()) },
		"some": func(s *site) {
			records := s.open()
			found, _, err := recordfile.ReadAll(runRoot(s.paths))
			s.must(err)
			_, err = records.Adopt(s.Context(), []store.Rebuilt{{Record: found[0].Record, Execs: found[0].Execs}})
			s.must(err)
			s.die(records)
		},
		"all": func(s *site) {
			records := s.open()
			s.must(s.rebuilder(records).fromFiles(s.Context()))
			s.die(records)
		},
		"lost again":    func(s *site) { s.must(os.RemoveAll(s.paths.Database)) },
		"emptied again": func(s *site) { s.must(os.WriteFile(s.paths.Database, nil, 0o600)) },
	}
	for _, deaths := range []string{
		"aside", "half a file", "new file", "some", "all", "aside, aside", "aside, new file", "new file, some, some, all", "some, lost again",
		"all, lost again", "all, lost again, all", "all, emptied again, half a file, some, lost again", "all, all",
	} {
		s := newSite(t)
		before := s.live()
		old, err := os.ReadFile(s.paths.Database)
		s.must(err)
		s.must(os.WriteFile(s.paths.Database, old[:len(old)/1000], 0o600))
		for _, death := range strings.Split(deaths, ", ") {
			steps[death](s)
		}
		records := s.open()
		r := s.rebuilder(records)
		s.must(r.fromFiles(t.Context()))
		s.same(deaths, records, before)
		r.finish(t.Context())
		s.same(deaths, records, before)
		s.wantOneRebuild(deaths, records)
		if asides := s.asides(); len(asides) == 0 || records.RebuildPending() {
			t.Errorf("%s: kept are %v; pending is %t", deaths, asides, records.RebuildPending())
		} else if kept, err := os.ReadFile(asides[0]); err != nil || len(kept) != len(old)/1000 {
			t.Errorf("%s: of the old file %d bytes are kept, %v", deaths, len(kept), err)
		}
		s.die(records)
		records = s.open()
		s.must(s.rebuilder(records).fromFiles(t.Context())) // nothing is left to do
		s.same(deaths, records, before)
		s.wantOneRebuild(deaths, records)
		s.must(records.Close())
	}
}

// wantOneRebuild checks that a history begins with its rebuild, and has no other.
func (s *site) wantOneRebuild(what string, records *store.Store) {
	s.Helper()
	for _, id := range records.LiveIDs() {
		sb, err := records.Sandbox(s.Context(), id)
		s.must(err)
		events, err := records.Events(s.Context(), id, sb.LastSequence-1, 10)
		if err != nil || len(events) != 1 || events[0].GetEventType() != agboxv1.EventType_SANDBOX_REHYDRATED {
			s.Errorf("%s: the events of %s are %v, %v", what, id, events, err)
		}
		if sb.LastSequence == 2 {
			continue // the first one is gone, and 0 asks for whatever is there
		}
		if _, err := records.Events(s.Context(), id, sb.LastSequence-2, 10); !errdefs.IsOutOfRange(err) {
			s.Errorf("%s: %s has events of before: %v", what, id, err)
		}
	}
}

// TestABadRecordStopsNothing: neither the start, nor the others, nor the end of the rebuild.
func TestABadRecordStopsNothing(t *testing.T) {
	s := newSite(t)
	before := s.live()
	files := recordfile.New(runRoot(s.paths), s.log, func(err error) { t.Error(err) })
	for _, id := range []string{"bad1", "bad2"} {
		files.Sandbox(&storev1.SandboxRecord{
			Version: 1, SandboxId: id, Spec: &agboxv1.CreateSpec{Image: "x"}, Desired: &storev1.Desired{},
			State: int32(agboxv1.SandboxState_SANDBOX_STATE_DELETED),
		})
	}
	s.must(os.Remove(s.paths.Database))
	records := s.open()
	r := s.rebuilder(records)
	s.must(r.fromFiles(t.Context()))
	s.same("beside bad ones", records, before)
	r.finish(t.Context())
	if said := s.said.String(); records.RebuildPending() || !strings.Contains(said, "bad1") || !strings.Contains(said, "bad2") {
		t.Errorf("pending is %t; the log says %s", records.RebuildPending(), said)
	}
	s.must(records.Close())
}

// TestTheFormerUUIDStaysOurs: the records say whose the objects in the engine are.
func TestTheFormerUUIDStaysOurs(t *testing.T) {
	s := newSite(t)
	s.live()
	former, err := os.ReadFile(s.instance())
	s.must(errors.Join(err, os.Remove(s.instance()), os.Remove(s.paths.Database)))
	records := s.open()
	s.must(s.rebuilder(records).fromFiles(t.Context()))
	if got := records.InstanceIDs(); len(got) != 2 || got[1] != strings.TrimSpace(string(former)) || got[0] == got[1] {
		t.Errorf("ours are %v, and before was %s", got, former)
	}
	s.must(records.Close())
}

// TestWhatMayBeOursIsCountedAndTold: objects of other daemons are no trouble, however many there are.
func TestWhatMayBeOursIsCountedAndTold(t *testing.T) {
	s := newSite(t)
	records := s.open()
	fake := dockertest.NewFake()
	defer func() { s.must(errors.Join(fake.Close(), records.Close())) }()
	fake.AddImage("x", dockerx.Image{})
	for i := range 50 {
		id := fmt.Sprintf("theirs-%d", i)
		_, err := fake.CreateContainer(t.Context(), dockerx.ContainerSpec{Name: naming.Primary(id), Image: "x", Labels: map[string]string{
			naming.SandboxID: id, naming.Component: naming.ComponentPrimary, naming.Instance: "another",
		}})
		s.must(err)
	}
	r, counted := s.rebuilder(records), -1
	r.unread, r.skipped = 2, func(n int) { counted = n }
	gather := r.gather
	r.gather = func() recovery.Gatherer { g := gather(); g.Engine = fake; return g }
	for _, unreadable := range []int{0, 1} {
		fake.Fail(dockerx.OpInspectContainer, 51*unreadable, nil, false) // each once, and one of them once more
		s.said.Reset()
		s.must(r.fromEngine(t.Context()))
		said := s.said.String()
		if counted < 2+unreadable || strings.Count(said, "left alone by the rebuild") != counted-2 || strings.Contains(said, "count=50") != (unreadable == 0) {
			t.Errorf("%d are counted; the log says %s", counted, said)
		}
	}
}

// trouble is an engine that has some.
type trouble struct {
	mu      sync.Mutex
	away    string
	strange int // times that it is not the same as before
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

// TestARebuildEndsOnceAnEngineThatIsOursWasListed, and no earlier.
func TestARebuildEndsOnceAnEngineThatIsOursWasListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.live()
		s.must(os.Remove(s.paths.Database))
		records := s.open()
		defer func() { s.must(records.Close()) }()
		fake := dockertest.NewFake()
		defer func() { s.must(fake.Close()) }()
		e := &trouble{away: "it is away", strange: 2}
		fake.Fail(dockerx.OpListContainers, 3, nil, false)
		fake.Fail(dockerx.OpListNetworks, 1, nil, false)
		r := s.rebuilder(records)
		gather := r.gather
		r.gather = func() recovery.Gatherer { g := gather(); g.Engine = fake; return g }
		r.engine, r.same = e.engine, e.same
		s.must(r.fromFiles(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		r.finish(canceled(ctx, cancel))
		if !records.RebuildPending() || r.sentence() == "" {
			t.Error("it has ended with its daemon")
		}
		ended := make(chan struct{})
		go func() { r.finish(t.Context()); close(ended) }()
		time.Sleep(time.Hour)
		if !records.RebuildPending() || fake.Calls(dockerx.OpListContainers) > 0 {
			t.Error("it has ended without an engine")
		}
		e.mu.Lock()
		e.away = ""
		e.mu.Unlock()
		begun := time.Now()
		<-ended
		if records.RebuildPending() || r.sentence() != "" {
			t.Error("it has not ended")
		}
		if took := time.Since(begun); took > engineLookMax+6*rebuildPause {
			t.Errorf("it took %s from the engine's return", took)
		}
		if n := fake.Calls(dockerx.OpListContainers); n != 7 {
			t.Errorf("%d lists; 3 fail, then one is followed by a failing one of networks, 2 are of an engine that is not the same", n)
		}
	})
}

func canceled(ctx context.Context, cancel func()) context.Context { cancel(); return ctx }

func TestTheLifeOfWhatRunsBeganWithHostOrEngine(t *testing.T) {
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
		if got := lifeSince(boot, tc.engine); !got.Equal(tc.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	now := time.Now()
	if at := bootTime(now); at.IsZero() || at.After(now) || at.Before(now.AddDate(-20, 0, 0)) {
		t.Errorf("the host started at %s", at)
	}
}
