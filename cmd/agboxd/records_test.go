package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
	"github.com/agbox/agbox/store/storetest"
)

func TestAFirstStartWaitsForNothing(t *testing.T) {
	for name, prepare := range map[string]func(s *site) error{
		"nothing is there":        func(*site) error { return nil },
		"not even a directory":    func(s *site) error { return os.Remove(s.paths.DataDir) },
		"an empty file":           func(s *site) error { return os.WriteFile(s.paths.Database, nil, 0o600) },
		"files that are not ours": func(s *site) error { return os.MkdirAll(filepath.Join(s.logs, "lost+found"), 0o700) },
		"a first start that died": func(s *site) error { return os.WriteFile(s.paths.Database+".new", []byte("half"), 0o600) },
	} {
		s := newSite(t)
		s.must(prepare(s))
		records := s.open()
		if records.RebuildPending() {
			t.Errorf("%s: it is taken for a database that was lost: %s", name, s.said.String())
		}
		s.must(records.Close())
		if records = s.open(); records.RebuildPending() || strings.Contains(s.said.String(), "rebuild=true") {
			t.Errorf("%s: at the second start: %s", name, s.said.String())
		}
		s.must(records.Close())
	}
}

// TestALostDatabaseIsKnownByItsTraces: also if its log is lost. The remains are kept, and its UUID if it is known.
func TestALostDatabaseIsKnownByItsTraces(t *testing.T) {
	garbage := bytes.Repeat([]byte("no database "), 1000)
	for name, tc := range map[string]struct {
		lose     func(s *site) error
		kept     []byte // content set aside; nil: none
		instance bool   // the UUID is kept
	}{
		"the file is missing":   {func(s *site) error { return os.Remove(s.paths.Database) }, nil, true},
		"the file is empty":     {func(s *site) error { return os.Truncate(s.paths.Database, 0) }, []byte{}, true},
		"the file is garbage":   {func(s *site) error { return os.WriteFile(s.paths.Database, garbage, 0o600) }, garbage, true},
		"and the UUID is empty": {func(s *site) error { return errors.Join(os.Remove(s.paths.Database), os.Truncate(s.instance(), 0)) }, nil, false},
		"and the UUID is garbage": {func(s *site) error {
			return errors.Join(os.Remove(s.paths.Database), os.WriteFile(s.instance(), garbage[:40], 0o600))
		}, nil, false},
		"and only a directory is left": {func(s *site) error {
			return errors.Join(os.RemoveAll(s.paths.DataDir), os.MkdirAll(filepath.Join(runRoot(s.paths), execjournal.RunName("box1")), 0o700))
		}, nil, false},
		"and only logs are left": {func(s *site) error {
			return errors.Join(os.RemoveAll(s.paths.DataDir), os.MkdirAll(filepath.Join(s.logs, "box1"), 0o700))
		}, nil, false},
		"and nothing else is there": {func(s *site) error {
			return errors.Join(os.RemoveAll(s.paths.DataDir), os.Mkdir(s.paths.DataDir, 0o700), os.WriteFile(s.paths.Database, garbage, 0o600))
		}, garbage, false},
	} {
		s := newSite(t)
		records := s.open()
		instance := records.InstanceID()
		s.must(records.Close())
		s.must(errors.Join(os.RemoveAll(store.LogDir(s.paths.Database)), tc.lose(s)))
		records = s.open()
		if !records.RebuildPending() || (records.InstanceID() == instance) != tc.instance {
			t.Errorf("%s: pending is %t, instance %s was %s", name, records.RebuildPending(), records.InstanceID(), instance)
		}
		s.must(records.Close())
		s.wantKept(name, tc.kept)
	}
}

// TestADatabaseThatWasSetAsideIsATrace: the start that set it aside died before it created a new database.
func TestADatabaseThatWasSetAsideIsATrace(t *testing.T) {
	s := newSite(t)
	s.must(os.WriteFile(s.paths.Database, []byte("garbage"), 0o600))
	aside, err := store.SetAside(s.paths.Database, time.Now())
	s.must(err)
	records := s.open()
	if !records.RebuildPending() || len(s.asides()) != 1 || s.asides()[0] != aside {
		t.Errorf("pending is %t, kept are %v", records.RebuildPending(), s.asides())
	}
	s.must(records.Close())
}

// wantKept checks that exactly one database was set aside, and that the log names it; none if want is nil.
func (s *site) wantKept(what string, want []byte) {
	s.Helper()
	asides := s.asides()
	if want == nil || len(asides) != 1 {
		if want != nil || len(asides) > 0 {
			s.Errorf("%s: kept are %v", what, asides)
		}
		return
	}
	got, err := os.ReadFile(asides[0])
	if err != nil || !bytes.Equal(got, want) || !strings.Contains(s.said.String(), asides[0]) {
		s.Errorf("%s: %d bytes are kept of %d, %v; the log says %s", what, len(got), len(want), err, s.said.String())
	}
}

// TestFaultsOtherThanDamageChangeNoFile: only a restart or an operator can repair these faults.
func TestFaultsOtherThanDamageChangeNoFile(t *testing.T) {
	t.Parallel() // waits for locks
	for name, tc := range map[string]struct {
		harm  func(s *site) (undo func() error)
		class func(error) bool
	}{
		"a newer agboxd wrote it": {func(s *site) func() error {
			storetest.Put(s, s.paths.Database, "meta", "schema", []byte{0, 0, 0, 0, 0, 0, 0, 99})
			return nil
		}, errdefs.IsFailedPrecondition},
		"another daemon has it": {func(s *site) func() error { return s.open().Close }, errdefs.IsUnavailable},
		"another daemon has it, and somebody removed it": {func(s *site) func() error {
			other := s.open()
			s.must(os.Remove(s.paths.Database))
			return func() error { _ = other.Close(); return nil } // the clean end cannot be recorded
		}, errdefs.IsUnavailable},
		"another daemon has it, and somebody emptied it": {func(s *site) func() error {
			other := s.open()
			s.must(os.Rename(s.paths.Database, s.paths.Database+".elsewhere")) // so that the other one does not fault
			s.must(os.WriteFile(s.paths.Database, nil, 0o600))
			return other.Close
		}, errdefs.IsUnavailable},
		"it is a link to a disk that is not there": {func(s *site) func() error {
			s.must(errors.Join(os.Remove(s.paths.Database), os.Symlink("/nowhere/ids.db", s.paths.Database)))
			return nil
		}, errdefs.IsUnavailable},
		"it is a directory": {func(s *site) func() error {
			s.must(errors.Join(os.Remove(s.paths.Database), os.MkdirAll(filepath.Join(s.paths.Database, "x"), 0o700)))
			return nil
		}, errdefs.IsUnavailable},
		"the UUID can't be read": {func(s *site) func() error {
			s.must(errors.Join(os.Remove(s.paths.Database), os.Remove(s.instance()), os.Mkdir(s.instance(), 0o700)))
			return nil
		}, errdefs.IsUnavailable},
	} {
		s := newSite(t)
		s.must(s.open().Close())
		undo := tc.harm(s)
		before := s.listing()
		if _, err := s.records(); !tc.class(err) || exitCode(&exitError{exitStore, err}) != exitStore {
			t.Errorf("%s: %v", name, err)
		}
		if after := s.listing(); after != before {
			t.Errorf("%s: left is %s, and before was %s", name, after, before)
		}
		if undo != nil {
			s.must(undo())
		}
	}
}

// listing returns the names and sizes of the files in the data directory.
func (s *site) listing() string {
	s.Helper()
	entries, err := os.ReadDir(s.paths.DataDir)
	s.must(err)
	var b strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		s.must(err)
		if strings.HasSuffix(e.Name(), ".running") || e.Name() == "log" {
			continue
		}
		fmt.Fprintf(&b, "%s %d %s\n", e.Name(), info.Size(), info.Mode().Type())
	}
	return b.String()
}

// TestADatabaseCutAnywhereComesBack: a hundred times, each time from the log written by the previous start.
func TestADatabaseCutAnywhereComesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	before := s.live()
	whole, err := os.ReadFile(s.paths.Database)
	s.must(err)
	whole = bytes.TrimRight(whole, "\x00") // the rest was never used
	losses := 100                          // a quarter of them with -short
	if testing.Short() {
		losses = 25
	}
	for i := range losses {
		at := rand.IntN(len(whole))
		s.must(os.WriteFile(s.paths.Database, whole[:at], 0o600))
		what := fmt.Sprintf("loss %d, cut after %d of %d bytes", i+1, at, len(whole))
		records := s.open()
		s.wantKept(what, whole[:at])
		if records.RebuildPending() {
			t.Errorf("%s: a rebuild is pending", what)
		}
		s.same(what, records, before)
		s.die(records)
		for _, aside := range s.asides() {
			s.must(os.Remove(aside))
		}
		s.said.Reset()
	}
}
