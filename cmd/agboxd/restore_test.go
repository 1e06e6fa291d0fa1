package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/host/lockfile"
	"github.com/agbox/agbox/store"
)

// TestMain makes the test binary run as agboxd's child process.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == backup.CheckVerb {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise the race detector makes each child last a second
	code := m.Run()
	for _, f := range atExit {
		f()
	}
	os.Exit(code)
}

// atExit holds functions to call after all tests.
var atExit []func()

// place holds the directories of one stopped daemon.
type place struct {
	t     *testing.T
	paths config.Paths
	logs  string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	homed(t)
	paths, err := config.ResolvePaths(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	return &place{t, paths, filepath.Join(paths.DataDir, "exec-logs")}
}

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) open() *store.Store {
	p.t.Helper()
	s, err := store.Open(p.t.Context(), store.Options{Path: p.paths.Database, InitialMmapSize: 64 << 20, Logger: slog.New(slog.DiscardHandler)})
	p.must(err)
	return s
}

// add records a ready sandbox and an ended exec in it, with its log.
func (p *place) add(id string) {
	p.t.Helper()
	s := p.open()
	ctx := p.t.Context()
	_, err := s.CreateSandbox(ctx, id, "name-"+id, &agboxv1.CreateSpec{Image: "x"}, nil)
	p.must(err)
	ready := &agboxv1.SandboxEvent{EventType: agboxv1.EventType_SANDBOX_READY, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_READY}
	p.must(s.Report(ctx, id, store.Report{Generation: 1, Events: []*agboxv1.SandboxEvent{ready}}))
	_, err = s.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: id, ExecId: "exec-" + id, Command: []string{"true"}}, store.Caller{})
	p.must(err)
	p.must(s.EndExec(ctx, "exec-"+id, &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FINISHED)}))
	p.must(s.Close())
	p.must(os.MkdirAll(filepath.Join(p.logs, id), 0o700))
	p.must(os.WriteFile(p.log(id), []byte("log of "+id), 0o640))
}

func (p *place) log(id string) string { return filepath.Join(p.logs, id, "exec-"+id+".stdout.log") }

func (p *place) has() []string {
	p.t.Helper()
	s := p.open()
	ids := s.LiveIDs()
	p.must(s.Close())
	return ids
}

// backup writes a backup and returns its path.
func (p *place) backup(withLogs bool) string {
	p.t.Helper()
	s := p.open()
	d := &daemon{store: s}
	d.cfg.Artifacts.ExecOutputRoot = p.logs
	d.current.Store(&d.cfg)
	file := filepath.Join(p.t.TempDir(), "backup")
	f, err := os.Create(file)
	p.must(err)
	p.must(errors.Join(d.newMaker(p.paths).Write(p.t.Context(), f, withLogs), f.Close(), s.Close()))
	return file
}

func (p *place) kept() []string {
	p.t.Helper()
	names, err := filepath.Glob(p.paths.Database + ".before-restore-*")
	p.must(err)
	return names
}

func (p *place) wants(what string, ids ...string) {
	p.t.Helper()
	if got := p.has(); !slices.Equal(got, ids) {
		p.t.Errorf("%s: %v, want %v", what, got, ids)
	}
}

func TestRestore(t *testing.T) {
	p := newPlace(t)
	p.add("one1")
	file := p.backup(true)
	p.add("two2")
	p.must(os.Remove(p.log("one1")))
	p.must(os.WriteFile(p.log("two2"), []byte("newer"), 0o600))
	code, out, errs := outcome("restore", file)
	if code != exitOK || errs != "" {
		t.Fatalf("%d %q", code, errs)
	}
	kept := p.kept()
	if len(kept) != 1 {
		t.Fatalf("kept %v", kept)
	}
	for _, want := range []string{"is restored to " + p.paths.Database + ": the records of store ", kept[0], "Logs: 1 written, 0 were there", "never removed"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	p.wants("restored", "one1")
	if text, err := os.ReadFile(p.log("one1")); err != nil || string(text) != "log of one1" {
		t.Errorf("log %q, %v", text, err)
	}
	if text, _ := os.ReadFile(p.log("two2")); string(text) != "newer" {
		t.Errorf("a log that the backup does not know: %q", text)
	}
	instance, err := os.ReadFile(filepath.Join(p.paths.DataDir, "instance"))
	s := p.open()
	if err != nil || strings.TrimSpace(string(instance)) != s.InstanceID() {
		t.Errorf("instance %q, %v", instance, err)
	}
	p.must(s.Close())
	p.must(os.Rename(kept[0], p.paths.Database))
	p.wants("the one before", "one1", "two2")
}

func TestRestoreWhereNothingIs(t *testing.T) {
	file := func() string {
		p := newPlace(t)
		p.add("one1")
		return p.backup(true)
	}()
	p := newPlace(t)
	if code, out, errs := outcome("restore", file); code != exitOK || !strings.Contains(out, "no database before") {
		t.Fatalf("%d %q %q", code, out, errs)
	}
	p.wants("restored", "one1")
	info, err := os.Stat(p.paths.Database)
	if err != nil || info.Mode().Perm() != 0o600 || len(p.kept()) != 0 {
		t.Errorf("%v, %v, %v", info, err, p.kept())
	}
	if text, err := os.ReadFile(p.log("one1")); err != nil || string(text) != "log of one1" {
		t.Errorf("log %q, %v", text, err)
	}
}

func TestRestoreRefusesBesideADaemon(t *testing.T) {
	p := newPlace(t)
	p.add("one1")
	file := p.backup(false)
	held, err := lockfile.Acquire(p.paths.Lock)
	p.must(err)
	for _, verb := range [][]string{{"restore", file}, {"db", "compact"}} {
		if code, _, errs := outcome(verb...); code != exitRunning || !strings.Contains(errs, "another agboxd is running") {
			t.Errorf("%v with the lock held: %d %q", verb, code, errs)
		}
	}
	p.must(held.Close())
	s := p.open() // a daemon with another XDG_RUNTIME_DIR
	if code, _, errs := outcome("restore", file); code != exitRunning || !strings.Contains(errs, "stop it first") {
		t.Errorf("with the database open: %d %q", code, errs)
	}
	p.must(s.Close())
	p.wants("after that", "one1")
}

// TestRestoreRefusesDamage damages the file at any position; restore does not touch the database.
func TestRestoreRefusesDamage(t *testing.T) {
	p := newPlace(t)
	p.add("one1")
	file := p.backup(true)
	whole, err := os.ReadFile(file)
	p.must(err)
	before, err := os.ReadFile(p.paths.Database)
	p.must(err)
	for i := range 30 {
		at := rand.IntN(len(whole))
		bad := slices.Clone(whole)
		if bad[at] ^= 1 << rand.IntN(8); i%2 == 0 {
			bad = whole[:at]
		}
		p.must(os.WriteFile(file, bad, 0o600))
		if code, out, errs := outcome("restore", file); code != exitRuntime || out != "" || !strings.Contains(errs, file) {
			t.Fatalf("changed at %d: %d %q %q", at, code, out, errs)
		}
	}
	if after, err := os.ReadFile(p.paths.Database); err != nil || !slices.Equal(before, after) || len(p.kept()) > 0 {
		t.Errorf("the database was touched: %v", err)
	}
}

// A backup with a correct checksum can contain a damaged database.
func TestRestoreRefusesADamagedDatabase(t *testing.T) {
	p := newPlace(t)
	p.add("one1")
	file := filepath.Join(t.TempDir(), "backup")
	f, err := os.Create(file)
	p.must(err)
	h := backup.Header{Schema: 1, Created: time.Now(), DatabaseBytes: 5, Instance: "0e12dd5b-58f1-4a5c-8d6b-3f5f9a1c2b3d"}
	p.must(errors.Join(backup.Write(f, h, strings.NewReader("wrong"), nil), f.Close()))
	if code, _, errs := outcome("restore", file); code != exitRuntime || !strings.Contains(errs, "the database is damaged") {
		t.Errorf("%d %q", code, errs)
	}
	h.Schema = 99
	f, err = os.Create(file)
	p.must(err)
	p.must(errors.Join(backup.Write(f, h, strings.NewReader("wrong"), nil), f.Close()))
	if code, _, errs := outcome("restore", file); code != exitRuntime || !strings.Contains(errs, "newer agboxd") {
		t.Errorf("%d %q", code, errs)
	}
	p.wants("after that", "one1")
	if _, err := os.Stat(p.paths.Database + ".restoring"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

var errCrash = errors.New("crash")

// TestARestoreSurvivesADeathAtEachStep: the old or the new database is in place, and the restore can be repeated.
func TestARestoreSurvivesADeathAtEachStep(t *testing.T) {
	for _, at := range []string{"extract", "check", "logs", "keep", "install", "instance"} {
		t.Run(at, func(t *testing.T) {
			p := newPlace(t)
			p.add("one1")
			file := p.backup(true)
			p.add("two2")
			p.must(os.RemoveAll(p.logs))
			p.dies(file, at)
			if at == "install" || at == "instance" {
				p.wants("new", "one1")
			} else {
				p.wants("old", "one1", "two2")
			}
			if code, _, errs := outcome("restore", file); code != exitOK {
				t.Fatalf("again: %d %q", code, errs)
			}
			p.wants("restored", "one1")
			if text, err := os.ReadFile(p.log("one1")); err != nil || string(text) != "log of one1" {
				t.Errorf("log %q, %v", text, err)
			}
			if left, _ := filepath.Glob(p.paths.DataDir + "/*.restoring"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// dies runs a restore that stops after a step, as in a crash: only what the kernel releases is cleaned up.
func (p *place) dies(file, at string) {
	p.t.Helper()
	offline, release, err := lockDatabase(p.t.Context(), p.paths)
	p.must(err)
	defer release()
	b, closeFile, err := backup.OpenPath(p.t.Context(), file)
	p.must(err)
	defer closeFile()
	r := &backup.Restore{
		Backup: b, Offline: offline, Database: p.paths.Database, Instance: filepath.Join(p.paths.DataDir, "instance"), Logs: p.logs,
		CheckSchema: store.CheckSchema, Check: backup.CheckInChild, Now: time.Now,
	}
	r.After = func(step string) error {
		if _, err := os.Stat(p.paths.Database); err != nil {
			p.t.Errorf("after %s there is no database: %v", step, err)
		}
		if step == at {
			return errCrash
		}
		return nil
	}
	if err := r.Run(p.t.Context()); !errors.Is(err, errCrash) {
		p.t.Fatalf("the step %s did not come: %v", at, err)
	}
}

// TestLogsAreRestoredWhereTheyAreMissing: the directories are writable for containers.
func TestLogsAreRestoredWhereTheyAreMissing(t *testing.T) {
	p := newPlace(t)
	p.add("one1")
	p.add("two2")
	file := p.backup(true)
	outside := filepath.Join(t.TempDir(), "outside")
	p.must(os.WriteFile(p.log("one1"), []byte("went on"), 0o600))
	p.must(os.Remove(p.log("two2")))
	for _, name := range []string{".restoring.tmp", "exec-two2.stderr.log"} {
		p.must(os.Symlink(outside, filepath.Join(p.logs, "two2", name)))
	}
	b, closeFile, err := backup.OpenPath(t.Context(), file)
	p.must(err)
	defer closeFile()
	for i, want := range [][2]int{{1, 1}, {0, 2}} {
		restored, kept, err := b.RestoreLogs(t.Context(), p.logs)
		if err != nil || restored != want[0] || kept != want[1] {
			t.Errorf("time %d: %d restored, %d kept, %v", i, restored, kept, err)
		}
	}
	one, _ := os.ReadFile(p.log("one1"))
	two, _ := os.ReadFile(p.log("two2"))
	if string(one) != "went on" || string(two) != "log of two2" {
		t.Errorf("logs %q, %q", one, two)
	}
	if info, err := os.Stat(p.log("two2")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Stat(outside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a link was followed: %v", err)
	}
	elsewhere := filepath.Join(t.TempDir(), "logs")
	p.must(errors.Join(os.Mkdir(elsewhere, 0o700), os.Symlink(p.logs, filepath.Join(elsewhere, "one1"))))
	if _, _, err := b.RestoreLogs(t.Context(), elsewhere); !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a directory that is a link: %v", err)
	}
}
