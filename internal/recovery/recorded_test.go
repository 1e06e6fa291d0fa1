package recovery

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/store"
)

// The store records a plan and returns it unchanged, also after a restart.
func TestStoreRecordsAPlan(t *testing.T) {
	for name, change := range map[string]func(*Found){
		"running":           func(*Found) {},
		"paused":            func(f *Found) { f.Containers[0].State = dockerx.StatePaused },
		"stopped":           func(f *Found) { exited(f, 0) },
		"crashed":           func(f *Found) { exited(f, 3) },
		"half created":      func(f *Found) { firstRun(f); f.Containers[0].State = dockerx.StateCreated },
		"without a primary": func(f *Found) { f.Containers = nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := found(t)
			change(&f)
			f.Traces = append(f.Traces, ended("exec-1", 5, now.Add(-time.Minute)))
			want := one(t, input(f))
			o := store.Options{Path: filepath.Join(t.TempDir(), "ids.db"), Now: func() time.Time { return now }, Instance: ours, Rebuild: true}
			s, err := store.Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if ids, err := s.RecordRebuilt(t.Context(), []store.Rebuilt{want.Rebuilt}); err != nil || !slices.Equal(ids, []string{boxID}) {
				t.Fatalf("recorded %v, %v", ids, err)
			}
			checkRebuilt(t, s, want)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s, err = store.Open(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			checkRebuilt(t, s, want)
		})
	}
}

func checkRebuilt(t *testing.T, s *store.Store, want Sandbox) {
	t.Helper()
	got, err := s.Sandbox(t.Context(), boxID)
	if err != nil {
		t.Fatal(err)
	}
	r, d := want.Record, got.Desired
	switch {
	case got.Corrupt, got.State != agboxv1.SandboxState(r.GetState()), got.ErrorCode != r.GetErrorCode(), got.Preparing != r.GetPreparing(),
		got.Name != r.GetDesired().GetName(), d.GetRunState() != r.GetDesired().GetRunState(), d.GetDeadlineAt() != r.GetDesired().GetDeadlineAt(),
		got.Progress.GetHooksDone() != r.GetProgress().GetHooksDone(), got.LastSequence <= r.GetLastSequence():
		t.Errorf("got %+v\nwant %v", got, r)
	case !slices.Equal(d.GetRehydrated().GetDefaulted(), want.Defaulted):
		t.Errorf("defaulted %v, want %v", d.GetRehydrated().GetDefaulted(), want.Defaulted)
	case !got.StateChangedAt.Equal(now):
		t.Errorf("in its state since %s", got.StateChangedAt)
	}
	e, err := s.Exec(t.Context(), "exec-1")
	if err != nil || e.End.GetExitCode() != 5 || e.End.GetEndedAt() != now.Add(-time.Minute).UnixNano() {
		t.Errorf("exec %+v, %v", e, err)
	}
}
