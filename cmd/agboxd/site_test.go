package main

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
	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/store"
)

// site holds the data of a daemon that loses its database.
type site struct {
	testing.TB
	paths config.Paths
	logs  string
	said  bytes.Buffer
	log   *slog.Logger
}

func newSite(t testing.TB) *site {
	t.Helper()
	data := filepath.Join(memoryDir(t), "data")
	s := &site{TB: t, paths: config.Paths{DataDir: data, Database: filepath.Join(data, "ids.db")}, logs: filepath.Join(data, "exec-logs")}
	s.log = slog.New(slog.NewTextHandler(&s.said, nil))
	s.must(os.Mkdir(data, 0o700))
	return s
}

// memoryDir returns a directory in memory if there is one: these tests sync thousands of times, and do not test disks.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "agboxd-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// records opens the records like agboxd.
func (s *site) records() (*store.Store, error) {
	self, err := os.Executable()
	s.must(err)
	records, _, err := openRecords(s.Context(), store.Options{
		Path: s.paths.Database, InitialMmapSize: 64 << 20, Logger: s.log, CheckProgram: []string{self, backup.CheckVerb},
		LogFailed: func(err error) { s.Error(err) },
	}, s.paths, s.logs, s.log)
	if err == nil {
		<-records.LogReady()
		s.must(os.WriteFile(s.instance(), []byte(records.InstanceID()+"\n"), 0o600))
	}
	return records, err
}

func (s *site) open() *store.Store {
	s.Helper()
	records, err := s.records()
	s.must(err)
	return records
}

// cutLog truncates the log, so that it is incomplete.
func (s *site) cutLog() {
	s.Helper()
	segments, err := filepath.Glob(filepath.Join(store.LogDir(s.paths.Database), "segment-*"))
	s.must(err)
	info, err := os.Stat(segments[len(segments)-1])
	s.must(errors.Join(err, os.Truncate(segments[len(segments)-1], info.Size()-1)))
}

func (s *site) instance() string { return filepath.Join(s.paths.DataDir, "instance") }

// die stops a daemon and leaves its files as after a kill.
func (s *site) die(records *store.Store) {
	s.Helper()
	s.must(records.Close())
	s.must(os.WriteFile(s.paths.Database+".running", []byte("o"), 0o600))
}

func (s *site) asides() []string {
	s.Helper()
	names, err := filepath.Glob(s.paths.Database + ".damaged-*")
	s.must(err)
	return names
}

// rebuilder returns a rebuilder with an available, empty engine.
func (s *site) rebuilder(records *store.Store) *rebuilder {
	engine := dockertest.NewFake()
	return &rebuilder{
		store: records, log: s.log, engine: func() string { return "" },
		same:     func(context.Context, *storev1.EngineRun) error { return nil },
		recorded: func(recovery.Source, int) {}, skipped: func(int) {},
		gather: func() recovery.Gatherer {
			return recovery.Gatherer{
				Engine: engine, Files: execjournal.New(s.logs, runRoot(s.paths)), Log: s.log, Instance: records.InstanceID(),
			}
		},
	}
}

// past holds the records before the database was lost.
type past struct {
	sandboxes map[string]store.Sandbox
	execs     map[string]store.Exec
	events    map[string][]*agboxv1.SandboxEvent
}

// live records one sandbox of each history, kills the daemon and returns the records.
func (s *site) live() past {
	s.Helper()
	records := s.open()
	for id, h := range histories {
		spec := &agboxv1.CreateSpec{Image: "x", Labels: map[string]string{"team": id}, Envs: map[string]string{"SECRET": "of " + id}}
		_, err := records.CreateSandbox(s.Context(), id, "name-of-"+id, spec, nil)
		s.must(err)
		s.must(h(records, id))
	}
	known := s.known(records)
	s.die(records)
	return known
}

func (s *site) known(records *store.Store) past {
	s.Helper()
	p := past{map[string]store.Sandbox{}, map[string]store.Exec{}, map[string][]*agboxv1.SandboxEvent{}}
	for _, id := range records.LiveIDs() {
		sb, err := records.Sandbox(s.Context(), id)
		s.must(err)
		p.sandboxes[id] = sb
		p.events[id], err = records.EventsAfter(s.Context(), id, store.Cursor{GapsTo: sb.LastSequence}, 0)
		s.must(err)
	}
	for _, id := range []string{"execs-done", "execs-fails", "execs-goes"} {
		if e, err := records.Exec(s.Context(), id); err == nil {
			p.execs[id] = e
		}
	}
	return p
}

// same compares each field with the records before the loss.
func (s *site) same(what string, records *store.Store, before past) {
	s.Helper()
	now := s.known(records)
	if len(now.sandboxes) != len(before.sandboxes) || len(now.execs) != len(before.execs) {
		s.Errorf("%s: %d sandboxes and %d execs, want %d and %d", what, len(now.sandboxes), len(now.execs), len(before.sandboxes), len(before.execs))
	}
	for id, was := range before.sandboxes {
		s.sameSandbox(what+", "+id, now.sandboxes[id], was)
		if !slices.EqualFunc(now.events[id], before.events[id], func(a, b *agboxv1.SandboxEvent) bool { return proto.Equal(a, b) }) {
			s.Errorf("%s: the events of %s are %v, and were %v", what, id, now.events[id], before.events[id])
		}
	}
	for id, was := range before.execs {
		is := now.execs[id]
		if is.SandboxID != was.SandboxID || !proto.Equal(is.Request, was.Request) || !proto.Equal(is.Desired, was.Desired) || !proto.Equal(is.End, was.End) {
			s.Errorf("%s: exec %s is %+v, and was %+v", what, id, is, was)
		}
	}
}

func (s *site) sameSandbox(what string, is, was store.Sandbox) {
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
