// Package recoverytest has the files of a daemon that loses its database, for tests.
package recoverytest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/store"
)

// Site has the files of a daemon that loses its database.
type Site struct {
	testing.TB
	recovery.Site
	Said   bytes.Buffer // what Logger logged
	Logger *slog.Logger
}

// New returns a site with an empty data directory, which is removed with the test.
func New(t testing.TB) *Site {
	t.Helper()
	data := filepath.Join(memoryDir(t), "data")
	s := &Site{TB: t, Site: recovery.Site{DataDir: data, Database: filepath.Join(data, "ids.db"), LogRoot: filepath.Join(data, "exec-logs")}}
	s.Logger = slog.New(slog.NewTextHandler(&s.Said, nil))
	s.Must(os.Mkdir(data, 0o700))
	return s
}

// memoryDir returns a directory in memory if there is one: these tests sync thousands of times, and do not test disks.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "agboxd-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Must ends the test if err is not nil.
func (s *Site) Must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// Records opens the records like agboxd. The test binary must run backup.CheckMain.
func (s *Site) Records() (*store.Store, error) {
	self, err := os.Executable()
	s.Must(err)
	records, _, err := s.Open(s.Context(), store.Options{
		InitialMmapSize: 64 << 20, Logger: s.Logger, CheckProgram: []string{self, backup.CheckVerb},
		LogFailed: func(err error) { s.Error(err) },
	}, s.Logger)
	if err == nil {
		<-records.LogReady()
		s.Must(os.WriteFile(s.Instance(), []byte(records.InstanceID()+"\n"), 0o600))
	}
	return records, err
}

// Start is Records without an error.
func (s *Site) Start() *store.Store {
	s.Helper()
	records, err := s.Records()
	s.Must(err)
	return records
}

// CutLog truncates the log, so that it is incomplete.
func (s *Site) CutLog() {
	s.Helper()
	segments, err := filepath.Glob(filepath.Join(store.LogDir(s.Database), "segment-*"))
	s.Must(err)
	info, err := os.Stat(segments[len(segments)-1])
	s.Must(errors.Join(err, os.Truncate(segments[len(segments)-1], info.Size()-1)))
}

// Instance is the path of the file with the UUID of the store.
func (s *Site) Instance() string { return filepath.Join(s.DataDir, "instance") }

// Die stops a daemon and leaves its files as after a kill.
func (s *Site) Die(records *store.Store) {
	s.Helper()
	s.Must(records.Close())
	s.Must(os.WriteFile(s.Database+".running", []byte("o"), 0o600))
}

// Asides are the damaged databases that were kept.
func (s *Site) Asides() []string {
	s.Helper()
	names, err := filepath.Glob(s.Database + ".damaged-*")
	s.Must(err)
	return names
}

// Rebuilder returns a rebuilder with an available, empty engine.
func (s *Site) Rebuilder(records *store.Store) *recovery.Rebuilder {
	engine := dockertest.NewFake()
	return &recovery.Rebuilder{
		Store: records, Logger: s.Logger, Engine: func() string { return "" },
		SameEngine: func(context.Context, *storev1.EngineRun) error { return nil },
		Recorded:   func(recovery.Source, int) {}, Skipped: func(int) {},
		Gather: func() recovery.Gatherer {
			return recovery.Gatherer{Engine: engine, Files: s.Execs(), Log: s.Logger, Instance: records.InstanceID()}
		},
	}
}

// Past holds the records before the database was lost.
type Past struct {
	Sandboxes map[string]store.Sandbox
	Execs     map[string]store.Exec
	events    map[string][]*agboxv1.SandboxEvent
}

// Live records one sandbox of each history, kills the daemon and returns the records.
func (s *Site) Live() Past {
	s.Helper()
	records := s.Start()
	for id, h := range histories {
		spec := &agboxv1.CreateSpec{Image: "x", Labels: map[string]string{"team": id}, Envs: map[string]string{"SECRET": "of " + id}}
		_, err := records.CreateSandbox(s.Context(), id, "name-of-"+id, spec, nil)
		s.Must(err)
		s.Must(h(records, id))
	}
	known := s.known(records)
	s.Die(records)
	return known
}

func (s *Site) known(records *store.Store) Past {
	s.Helper()
	p := Past{map[string]store.Sandbox{}, map[string]store.Exec{}, map[string][]*agboxv1.SandboxEvent{}}
	for _, id := range records.LiveIDs() {
		sb, err := records.Sandbox(s.Context(), id)
		s.Must(err)
		p.Sandboxes[id] = sb
		p.events[id], err = records.EventsAfter(s.Context(), id, store.Cursor{GapsTo: sb.LastSequence}, 0)
		s.Must(err)
	}
	for _, id := range []string{"execs-done", "execs-fails", "execs-goes"} {
		if e, err := records.Exec(s.Context(), id); err == nil {
			p.Execs[id] = e
		}
	}
	return p
}

// Same compares each field with the records before the loss.
func (s *Site) Same(what string, records *store.Store, before Past) {
	s.Helper()
	now := s.known(records)
	if len(now.Sandboxes) != len(before.Sandboxes) || len(now.Execs) != len(before.Execs) {
		s.Errorf("%s: %d sandboxes and %d execs, want %d and %d", what, len(now.Sandboxes), len(now.Execs), len(before.Sandboxes), len(before.Execs))
	}
	for id, was := range before.Sandboxes {
		s.sameSandbox(what+", "+id, now.Sandboxes[id], was)
		if !slices.EqualFunc(now.events[id], before.events[id], func(a, b *agboxv1.SandboxEvent) bool { return proto.Equal(a, b) }) {
			s.Errorf("%s: the events of %s are %v, and were %v", what, id, now.events[id], before.events[id])
		}
	}
	for id, was := range before.Execs {
		is := now.Execs[id]
		if is.SandboxID != was.SandboxID || !proto.Equal(is.Request, was.Request) || !proto.Equal(is.Desired, was.Desired) || !proto.Equal(is.End, was.End) {
			s.Errorf("%s: exec %s is %+v, and was %+v", what, id, is, was)
		}
	}
}

func (s *Site) sameSandbox(what string, is, was store.Sandbox) {
	s.Helper()
	intent := is.Desired
	if !proto.Equal(intent, was.Desired) || !proto.Equal(is.Spec, was.Spec) || !proto.Equal(is.Progress, was.Progress) {
		s.Errorf("%s: is %v %v %v, and was %v %v %v", what, intent, is.Spec, is.Progress, was.Desired, was.Spec, was.Progress)
	}
	if is.Name != was.Name || is.State != was.State || is.ErrorCode != was.ErrorCode || is.ErrorMessage != was.ErrorMessage ||
		is.Preparing != was.Preparing || !slices.Equal(is.ActiveExecs, was.ActiveExecs) || is.LastSequence != was.LastSequence {
		s.Errorf("%s: is %+v, and was %+v", what, is, was)
	}
	if !is.StateChangedAt.Equal(was.StateChangedAt) || !is.CreatedAt.Equal(was.CreatedAt) || !is.IdleSince.Equal(was.IdleSince) {
		s.Errorf("%s: times are %s, %s, %s and were %s, %s, %s", what, is.StateChangedAt, is.CreatedAt, is.IdleSince,
			was.StateChangedAt, was.CreatedAt, was.IdleSince)
	}
}
