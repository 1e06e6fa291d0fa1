package recovery_test

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

	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/recovery/recoverytest"
	"github.com/agbox/agbox/store"
	"github.com/agbox/agbox/store/storetest"
)

// TestMain makes the test binary run as agboxd's child process.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == backup.CheckVerb {
		err := store.CheckFile(os.Args[2])
		switch {
		case err == nil:
			os.Exit(0)
		case errdefs.IsDataLoss(err):
			os.Exit(1)
		}
		os.Exit(store.ExitNoVerdict)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise the race detector makes each child last a second
	os.Exit(m.Run())
}

type site struct{ *recoverytest.Site }

func newSite(t testing.TB) *site { return &site{recoverytest.New(t)} }

func TestAFirstStartWaitsForNothing(t *testing.T) {
	for name, prepare := range map[string]func(s *site) error{
		"nothing is there":        func(*site) error { return nil },
		"not even a directory":    func(s *site) error { return os.Remove(s.DataDir) },
		"an empty file":           func(s *site) error { return os.WriteFile(s.Database, nil, 0o600) },
		"files that are not ours": func(s *site) error { return os.MkdirAll(filepath.Join(s.LogRoot, "lost+found"), 0o700) },
		"a first start that died": func(s *site) error { return os.WriteFile(s.Database+".new", []byte("half"), 0o600) },
	} {
		s := newSite(t)
		s.Must(prepare(s))
		records := s.Start()
		if records.RebuildPending() {
			t.Errorf("%s: it is taken for a database that was lost: %s", name, s.Said.String())
		}
		s.Must(records.Close())
		if records = s.Start(); records.RebuildPending() || strings.Contains(s.Said.String(), "rebuild=true") {
			t.Errorf("%s: at the second start: %s", name, s.Said.String())
		}
		s.Must(records.Close())
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
		"the file is missing":   {func(s *site) error { return os.Remove(s.Database) }, nil, true},
		"the file is empty":     {func(s *site) error { return os.Truncate(s.Database, 0) }, []byte{}, true},
		"the file is garbage":   {func(s *site) error { return os.WriteFile(s.Database, garbage, 0o600) }, garbage, true},
		"and the UUID is empty": {func(s *site) error { return errors.Join(os.Remove(s.Database), os.Truncate(s.Instance(), 0)) }, nil, false},
		"and the UUID is garbage": {func(s *site) error {
			return errors.Join(os.Remove(s.Database), os.WriteFile(s.Instance(), garbage[:40], 0o600))
		}, nil, false},
		"and only a directory is left": {func(s *site) error {
			return errors.Join(os.RemoveAll(s.DataDir), os.MkdirAll(filepath.Join(s.RunRoot(), execjournal.RunName("box1")), 0o700))
		}, nil, false},
		"and only logs are left": {func(s *site) error {
			return errors.Join(os.RemoveAll(s.DataDir), os.MkdirAll(filepath.Join(s.LogRoot, "box1"), 0o700))
		}, nil, false},
		"the file is garbage, and only a directory is left": {func(s *site) error {
			return errors.Join(os.RemoveAll(s.DataDir), os.MkdirAll(filepath.Join(s.RunRoot(), execjournal.RunName("box1")), 0o700),
				os.WriteFile(s.Database, garbage, 0o600))
		}, garbage, false},
	} {
		s := newSite(t)
		records := s.Start()
		instance := records.InstanceID()
		s.Must(records.Close())
		s.Must(errors.Join(os.RemoveAll(store.LogDir(s.Database)), tc.lose(s)))
		records = s.Start()
		if !records.RebuildPending() || (records.InstanceID() == instance) != tc.instance {
			t.Errorf("%s: pending is %t, instance %s was %s", name, records.RebuildPending(), records.InstanceID(), instance)
		}
		s.Must(records.Close())
		s.wantKept(name, tc.kept)
	}
}

// TestAFileThatIsNotProvablyOursIsRefused: it is not set aside, however often agboxd starts, and agboxd starts once the user has moved it.
func TestAFileThatIsNotProvablyOursIsRefused(t *testing.T) {
	garbage := bytes.Repeat([]byte("no database "), 1000)
	empty := filepath.Join(t.TempDir(), "empty.db")
	storetest.NewOlder(t, empty, time.Now()).Close()
	noBuckets, err := os.ReadFile(empty)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		file   []byte
		beside func(s *site) error
	}{
		"garbage, and nothing else is there": {garbage, func(*site) error { return nil }},
		"a database without buckets":         {noBuckets, func(*site) error { return nil }},
		"logs that an older daemon has, too": {garbage, func(s *site) error { return os.MkdirAll(filepath.Join(s.LogRoot, "box1"), 0o700) }},
		"a log of another program": {garbage, func(s *site) error {
			return errors.Join(os.Mkdir(store.LogDir(s.Database), 0o700), os.WriteFile(filepath.Join(store.LogDir(s.Database), "x.log"), nil, 0o600))
		}},
	} {
		s := newSite(t)
		s.Must(errors.Join(os.WriteFile(s.Database, tc.file, 0o600), tc.beside(s)))
		before := s.listing()
		for range 2 {
			_, err := s.Records()
			if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "mv "+s.Database) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got, err := os.ReadFile(s.Database); err != nil || !bytes.Equal(got, tc.file) || s.listing() != before {
			t.Errorf("%s: left is %s (%v), and before was %s", name, s.listing(), err, before)
		}
		s.Must(os.Rename(s.Database, s.Database+".moved"))
		s.Must(s.Start().Close())
	}
}

// TestADatabaseThatWasSetAsideIsATrace: the start that set it aside died before it created a new database.
func TestADatabaseThatWasSetAsideIsATrace(t *testing.T) {
	s := newSite(t)
	s.Must(os.WriteFile(s.Database, []byte("garbage"), 0o600))
	aside, err := store.SetAside(s.Database, time.Now())
	s.Must(err)
	records := s.Start()
	if !records.RebuildPending() || len(s.Asides()) != 1 || s.Asides()[0] != aside {
		t.Errorf("pending is %t, kept are %v", records.RebuildPending(), s.Asides())
	}
	s.Must(records.Close())
}

// wantKept checks that exactly one database was set aside, and that the log names it; none if want is nil.
func (s *site) wantKept(what string, want []byte) {
	s.Helper()
	asides := s.Asides()
	if want == nil || len(asides) != 1 {
		if want != nil || len(asides) > 0 {
			s.Errorf("%s: kept are %v", what, asides)
		}
		return
	}
	got, err := os.ReadFile(asides[0])
	if err != nil || !bytes.Equal(got, want) || !strings.Contains(s.Said.String(), asides[0]) {
		s.Errorf("%s: %d bytes are kept of %d, %v; the log says %s", what, len(got), len(want), err, s.Said.String())
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
			storetest.Put(s, s.Database, "meta", "schema", []byte{0, 0, 0, 0, 0, 0, 0, 99})
			return nil
		}, errdefs.IsFailedPrecondition},
		"another daemon has it": {func(s *site) func() error { return s.Start().Close }, errdefs.IsUnavailable},
		"another daemon has it, and it was removed": {func(s *site) func() error {
			other := s.Start()
			s.Must(os.Remove(s.Database))
			return func() error { _ = other.Close(); return nil } // the clean end cannot be recorded
		}, errdefs.IsUnavailable},
		"another daemon has it, and it was emptied": {func(s *site) func() error {
			other := s.Start()
			s.Must(os.Rename(s.Database, s.Database+".elsewhere")) // so that the other one does not fault
			s.Must(os.WriteFile(s.Database, nil, 0o600))
			return other.Close
		}, errdefs.IsUnavailable},
		"it is a link to a disk that is not there": {func(s *site) func() error {
			s.Must(errors.Join(os.Remove(s.Database), os.Symlink("/nowhere/ids.db", s.Database)))
			return nil
		}, errdefs.IsUnavailable},
		"it is a directory": {func(s *site) func() error {
			s.Must(errors.Join(os.Remove(s.Database), os.MkdirAll(filepath.Join(s.Database, "x"), 0o700)))
			return nil
		}, errdefs.IsUnavailable},
		"the UUID can't be read": {func(s *site) func() error {
			s.Must(errors.Join(os.Remove(s.Database), os.Remove(s.Instance()), os.Mkdir(s.Instance(), 0o700)))
			return nil
		}, errdefs.IsUnavailable},
	} {
		s := newSite(t)
		s.Must(s.Start().Close())
		undo := tc.harm(s)
		before := s.listing()
		if _, err := s.Records(); !tc.class(err) {
			t.Errorf("%s: %v", name, err)
		}
		if after := s.listing(); after != before {
			t.Errorf("%s: left is %s, and before was %s", name, after, before)
		}
		if undo != nil {
			s.Must(undo())
		}
	}
}

// listing returns the names and sizes of the files in the data directory.
func (s *site) listing() string {
	s.Helper()
	entries, err := os.ReadDir(s.DataDir)
	s.Must(err)
	var b strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		s.Must(err)
		if strings.HasSuffix(e.Name(), ".running") || e.Name() == "log" {
			continue
		}
		fmt.Fprintf(&b, "%s %d %s\n", e.Name(), info.Size(), info.Mode().Type())
	}
	return b.String()
}

// TestADatabaseCutAnywhereIsRestored: a hundred times, each time from the log written by the previous start.
func TestADatabaseCutAnywhereIsRestored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	before := s.Live()
	whole, err := os.ReadFile(s.Database)
	s.Must(err)
	whole = bytes.TrimRight(whole, "\x00") // the rest was never used
	losses := 100                          // a quarter of them with -short
	if testing.Short() {
		losses = 25
	}
	for i := range losses {
		at := rand.IntN(len(whole))
		s.Must(os.WriteFile(s.Database, whole[:at], 0o600))
		what := fmt.Sprintf("loss %d, cut after %d of %d bytes", i+1, at, len(whole))
		records := s.Start()
		s.wantKept(what, whole[:at])
		if records.RebuildPending() {
			t.Errorf("%s: a rebuild is pending", what)
		}
		s.Same(what, records, before)
		s.Die(records)
		for _, aside := range s.Asides() {
			s.Must(os.Remove(aside))
		}
		s.Said.Reset()
	}
}
