package store

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
	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store/internal/txlog"
)

// awaitLog waits until the log of s is complete.
func awaitLog(t testing.TB, s *Store) {
	t.Helper()
	select {
	case <-s.LogReady():
	case <-time.After(time.Minute):
		t.Fatal("the log is not complete after a minute")
	}
}

// content returns every bucket with every key and value except the lineage, which differs between files.
func content(tx *bolt.Tx) (string, error) {
	var b strings.Builder
	err := tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
		fmt.Fprintf(&b, "%s\n", name)
		return bucket.ForEach(func(k, v []byte) error {
			if string(name) != bucketMeta || string(k) != keyLineage {
				fmt.Fprintf(&b, " %q %q\n", k, v)
			}
			return nil
		})
	})
	return b.String(), err
}

func fileContent(t testing.TB, path string) string {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	must(t, err)
	defer db.Close()
	var text string
	must(t, db.View(func(tx *bolt.Tx) (err error) {
		text, err = content(tx)
		return err
	}))
	return text
}

// replayed returns the content restored from the log of a database.
func replayed(t testing.TB, o Options) (string, Recovery) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "replayed.db")
	r, err := replayTo(o.withDefaults(), to)
	if err != nil {
		t.Fatalf("replay: %v", err)
	}
	return fileContent(t, to), r
}

// wantReplay checks that the log restores the content of the file. The store is closed.
func wantReplay(t testing.TB, o Options) {
	t.Helper()
	got, r := replayed(t, o)
	if r.Missing != "" {
		t.Fatalf("the log is not complete: %s", r.Missing)
	}
	if want := fileContent(t, o.Path); got != want {
		t.Fatalf("the log makes\n%s\nand the file holds\n%s", got, want)
	}
}

// loseFile removes the database and recovers it from its log.
func loseFile(t testing.TB, o Options) Recovery {
	t.Helper()
	must(t, os.Remove(o.Path))
	r, err := Recover(ctx, o)
	must(t, err)
	return r
}

// copyTree copies the files of an open store, as a kill at this moment would leave them.
func copyTree(t testing.TB, o Options) Options {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	must(t, os.CopyFS(to, os.DirFS(filepath.Dir(o.Path))))
	o.Path = filepath.Join(to, filepath.Base(o.Path))
	return o
}

// TestTheLogHoldsEverything: after one of every request, the replay equals the file, bucket by bucket.
func TestTheLogHoldsEverything(t *testing.T) {
	s := open(t, newClock().options(testOptions(t)))
	awaitLog(t, s)
	oneOfEverything(t, s)
	_, err := s.update0(func(t *txn) error { t.delete(bucketUnproven, "hidden"); return nil })
	must(t, err)
	makeDeleted(t, s, "purged")
	must(t, s.PurgeSandbox(ctx, "purged"))
	must(t, s.Close())
	wantReplay(t, s.o)
}

func (s *Store) update0(fn func(*txn) error) (struct{}, error) { return struct{}{}, s.update(ctx, fn) }

// TestALostFileIsRestoredWithItsHistory: ended execs, events, deleted sandboxes, reserved IDs and agents.
func TestALostFileIsRestoredWithItsHistory(t *testing.T) {
	s := open(t, testOptions(t))
	awaitLog(t, s)
	_, err := s.CreateSandbox(ctx, "box", "web", spec(), nil)
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	startExec(t, s, "box", "ended")
	endExec(t, s, "ended")
	startExec(t, s, "box", "active")
	makeDeleted(t, s, "gone")
	makeDeleted(t, s, "purged")
	must(t, s.PurgeSandbox(ctx, "purged"))
	o := copyTree(t, s.o) // nothing was closed or synced
	events := allEvents(t, s, "box")
	must(t, s.Close())
	if r := loseFile(t, o); r.Missing != "" || r.Sandboxes != 1 {
		t.Fatalf("recovered %+v", r)
	}
	back := open(t, o)
	if back.RebuildPending() {
		t.Error("a complete log needs no rebuild")
	}
	if got := allEvents(t, back, "box"); len(got) != len(events) {
		t.Errorf("%d events, there were %d", len(got), len(events))
	}
	if e, err := back.Exec(ctx, "ended"); err != nil || e.End == nil {
		t.Errorf("the ended exec is %+v, %v", e, err)
	}
	if _, err := back.Sandbox(ctx, "gone"); err != nil {
		t.Errorf("the deleted sandbox: %v", err)
	}
	if _, err := back.CreateSandbox(ctx, "purged", "", spec(), nil); !errdefs.IsAlreadyExists(err) {
		t.Errorf("the ID of the purged one is free: %v", err)
	}
	endExec(t, back, "active")
	must(t, back.Close())
	checkDatabase(t, o.Path)
}

// TestRandomHistoriesAreRestored after random requests, with losses, compactions and closes at random moments.
func TestRandomHistoriesAreRestored(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := newClock()
		o := c.options(testOptions(t))
		o.minLogBytes = 4 << 10
		s := openUnsynced(t, o)
		m := &machine{t: rt, tb: t, s: s, clock: c, model: model{map[string]*modelSandbox{}, map[string]bool{}, map[string]string{}}}
		defer func() { must(t, m.s.Close()) }()
		action := func(fn func()) func(*rapid.T) {
			return func(rt *rapid.T) { m.t = rt; c.pass(time.Second); fn() }
		}
		awaitLog(t, s)
		reopened := func(o Options) {
			m.s = openUnsynced(t, o)
			m.s.SetEventHistoryLimit(int(s.historyLimit.Load()))
			s = m.s
			awaitLog(t, s)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create": action(m.create), "stop": action(m.stop), "resume": action(m.resume),
			"delete": action(m.delete), "report": action(m.report), "report again": action(m.report),
			"exec": action(m.exec), "end exec": action(m.endExec),
			"update": action(m.updateSpec), "limit": action(m.setLimit), "purge": action(m.purge),
			"lost": action(func() {
				waitFor(t, "the log is at rest", func() bool { // a copy during a change of the files would be invalid
					l := m.s.keeper.log.State()
					return l.Whole && l.Segments <= max(o.minLogBytes, l.Snapshot)
				})
				o := copyTree(t, m.s.o)
				before := fileContent(t, o.Path)
				must(t, m.s.Close())
				if r := loseFile(t, o); r.Missing != "" {
					rt.Fatalf("not complete: %s", r.Missing)
				}
				if got := fileContent(t, o.Path); got != before {
					rt.Fatalf("back is\n%s\nand was\n%s", got, before)
				}
				reopened(o)
			}),
			"closed": action(func() {
				must(t, m.s.Close())
				wantReplay(t, m.s.o)
				reopened(m.s.o)
			}),
			"": func(rt *rapid.T) { m.t = rt; m.check() },
		})
	})
}

// TestAKillAndALostFileLoseNothingThatWasAcknowledged: the test does not sync the log. A kill inside of a write that crosses a page may leave
// half of it: the log has no end mark then, so what comes back is hidden until it is recorded, and nothing acknowledged is missing.
func TestAKillAndALostFileLoseNothingThatWasAcknowledged(t *testing.T) {
	o := testOptions(t)
	var acked []string
	for round := 0; round < inShort(2, 6) || len(acked) < 100 && round < 100; round++ {
		acked = append(acked, killAWriter(t, o.Path)...)
		r := loseFile(t, o)
		s := open(t, o)
		if r.Missing != "" {
			wantTorn(t, r)
			recordHidden(t, s)
		}
		checkAcked(t, s, acked)
		checkWhole(t, s)
		must(t, s.Close())
	}
	t.Logf("%d acknowledged writes", len(acked))
}

// wantTorn checks that nothing but the end of the log is missing.
func wantTorn(t *testing.T, r Recovery) {
	t.Helper()
	if !strings.Contains(r.Missing, "are left") && !strings.Contains(r.Missing, "ends inside a frame") {
		t.Fatalf("not complete: %s", r.Missing)
	}
}

// recordHidden records what an incomplete log brought back, as a daemon does whose engine contradicts nothing.
func recordHidden(t *testing.T, s *Store) {
	t.Helper()
	hidden, err := s.Unproven(ctx)
	must(t, err)
	must(t, second(s.RecordRebuilt(ctx, hidden)))
	must(t, s.RebuildDone(ctx))
}

// TestAnEndMarkThatWasHalfWrittenLosesNothing: the mark is behind the transaction that was acknowledged last.
func TestAnEndMarkThatWasHalfWrittenLosesNothing(t *testing.T) {
	s := open(t, testOptions(t))
	awaitLog(t, s)
	makeReady(t, s, "box")
	startExec(t, s, "box", "job")
	endExec(t, s, "job")
	for cut := int64(1); cut < 56; cut += 6 { // 12 bytes of frame, 8 of txid, 36 of boot ID
		o := copyTree(t, s.o)
		segments, err := filepath.Glob(filepath.Join(LogDir(o.Path), "segment-*"))
		must(t, err)
		last := segments[len(segments)-1]
		info, err := os.Stat(last)
		must(t, errors.Join(err, os.Truncate(last, info.Size()-cut)))
		wantTorn(t, loseFile(t, o))
		back := open(t, o)
		recordHidden(t, back)
		if e, err := back.Exec(ctx, "job"); err != nil || e.End == nil || get1(t, back, "box").State != ready {
			t.Errorf("cut by %d: %+v, %v", cut, e, err)
		}
		must(t, back.Close())
	}
}

// tamper damages a file of the log as a fault could.
func tamper(r *rand.Rand, b []byte) []byte {
	switch r.IntN(4) {
	case 0:
		return b[:r.IntN(len(b))]
	case 1:
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	case 2:
		clear(b[r.IntN(len(b)):])
	case 3:
		return append(b, make([]byte, 1+r.IntN(100))...)
	}
	return b
}

// TestADamagedLogIsReportedAsIncomplete: the recovered state is an earlier one, and all its live sandboxes are hidden.
func TestADamagedLogIsReportedAsIncomplete(t *testing.T) {
	s := open(t, testOptions(t))
	awaitLog(t, s)
	for i := range 4 {
		makeReady(t, s, boxID(i))
		_, err := s.RequestStop(ctx, boxID(i), "stop_requested")
		must(t, err)
	}
	must(t, s.Close())
	segments, err := filepath.Glob(filepath.Join(LogDir(s.o.Path), "segment-*"))
	must(t, err)
	if len(segments) != 1 {
		t.Fatalf("segments %v", segments)
	}
	for seed := range uint64(60) {
		o := copyTree(t, s.o)
		path := filepath.Join(LogDir(o.Path), filepath.Base(segments[0]))
		whole, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path, tamper(rand.New(rand.NewPCG(seed, 1)), bytes.Clone(whole)), 0o600))
		r := loseFile(t, o)
		if r.Missing == "" {
			t.Fatalf("seed %d: taken for complete", seed)
		}
		back := open(t, o)
		hidden, err := back.Unproven(ctx)
		must(t, err)
		if !back.RebuildPending() || len(back.LiveIDs()) > 0 || len(hidden) != r.Sandboxes {
			t.Fatalf("seed %d: live are %v, hidden %d of %d", seed, back.LiveIDs(), len(hidden), r.Sandboxes)
		}
		must(t, back.Close())
	}
}

// TestAHiddenSandboxIsRecordedOnce, with the facts from its caller, also after a restart in between.
func TestAHiddenSandboxIsRecordedOnce(t *testing.T) {
	s := open(t, testOptions(t))
	awaitLog(t, s)
	_, err := s.CreateSandbox(ctx, "box", "web", spec(), nil)
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	startExec(t, s, "box", "ended")
	endExec(t, s, "ended")
	startExec(t, s, "box", "active")
	must(t, s.Report(ctx, "box", Report{Generation: 1}))
	must(t, s.Close())
	segments, err := filepath.Glob(filepath.Join(LogDir(s.o.Path), "segment-*"))
	must(t, err)
	info, err := os.Stat(segments[0])
	must(t, errors.Join(err, os.Truncate(segments[0], info.Size()-1)))
	loseFile(t, s.o)
	back := open(t, s.o)
	for name, err := range map[string]error{
		"the sandbox": second(back.Sandbox(ctx, "box")), "its exec": second(back.Exec(ctx, "ended")),
	} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("%s is not hidden: %v", name, err)
		}
	}
	if _, held := heldBy(back, "web"); held {
		t.Error("its name is held")
	}
	back = reopen(t, back)
	list, err := back.Unproven(ctx)
	must(t, err)
	if len(list) != 1 || len(list[0].Execs) != 2 {
		t.Fatalf("hidden are %v", list)
	}
	list[0].Record.LastSequence += 100
	list[0].Defaulted = []string{"record"}
	for range 2 { // the second time it exists, and is not changed
		ids, err := back.RecordRebuilt(ctx, list)
		must(t, err)
		list = list[:min(len(ids), 1)]
	}
	must(t, back.RebuildDone(ctx))
	for range 2 {
		sb := get1(t, back, "box")
		if sb.State != ready || sb.Name != "web" || len(sb.ActiveExecs) != 1 || sb.Desired.GetRehydrated().GetDefaulted()[0] != "record" {
			t.Errorf("it is %+v", sb)
		}
		if e, err := back.Exec(ctx, "ended"); err != nil || e.End == nil {
			t.Errorf("its exec is %+v, %v", e, err)
		}
		back = reopen(t, back)
	}
	endExec(t, back, "active")
	must(t, back.Close())
	checkDatabase(t, back.o.Path)
}

// TestACommitThatIsNotInTheLogIsMended: the daemon died between the commit and the append.
func TestACommitThatIsNotInTheLogIsMended(t *testing.T) {
	s := open(t, testOptions(t))
	awaitLog(t, s)
	create(t, s, "box")
	must(t, s.Close())
	db, err := bolt.Open(s.o.Path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketMeta)).Put([]byte("x"), nil) }))
	must(t, db.Close())
	s = open(t, s.o)
	awaitLog(t, s)
	create(t, s, "box-2")
	must(t, s.Close())
	wantReplay(t, s.o)
}

// TestAnAppendThatFailsFailsNoCommit and the next snapshot contains the transactions missing in the log.
func TestAnAppendThatFailsFailsNoCommit(t *testing.T) {
	failures := make(chan error, 10)
	o := testOptions(t)
	o.LogFailed, o.maxLogged = func(err error) { failures <- err }, 16<<10
	s := open(t, o)
	awaitLog(t, s)
	create(t, s, "before")
	large := spec()
	large.Envs["K"] = strings.Repeat("x", o.maxLogged)
	_, err := s.CreateSandbox(ctx, "box", "", large, nil)
	must(t, err)
	if err := <-failures; !strings.Contains(err.Error(), "too large") {
		t.Errorf("what failed is %v", err)
	}
	waitFor(t, "the log is complete again", s.LogWhole)
	create(t, s, "box-2")
	must(t, s.Close())
	wantReplay(t, s.o)
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
		time.Sleep(time.Millisecond) // there is no notification to wait for
	}
}

// TestPurgedDataLeavesTheLog when the log is compacted.
func TestPurgedDataLeavesTheLog(t *testing.T) {
	o := testOptions(t)
	o.minLogBytes = 1 << 10
	s := open(t, o)
	awaitLog(t, s)
	for i := range 30 {
		create(t, s, boxID(i))
	}
	waitFor(t, "it is compacted", func() bool {
		l := s.keeper.log.State()
		return l.Whole && l.Segments <= max(o.minLogBytes, l.Snapshot)
	})
	must(t, s.Close())
	wantReplay(t, s.o)
	names, err := os.ReadDir(LogDir(o.Path))
	must(t, err)
	if len(names) > 4 { // the newest snapshot and the previous one, each with a segment
		t.Errorf("the log is %v", names)
	}
}

// TestALogOfAnotherFileIsNotContinued: the file is a restored database, or one that an operator copied there.
func TestALogOfAnotherFileIsNotContinued(t *testing.T) {
	a, b := open(t, testOptions(t)), open(t, testOptions(t))
	awaitLog(t, a)
	awaitLog(t, b)
	create(t, a, "a")
	create(t, b, "b")
	must(t, a.Close())
	must(t, b.Close())
	data, err := os.ReadFile(b.o.Path)
	must(t, err)
	must(t, os.WriteFile(a.o.Path, data, 0o600))
	s := open(t, a.o)
	awaitLog(t, s)
	must(t, s.Close())
	wantReplay(t, s.o)
	must(t, errors.Join(txlog.Remove(LogDir(s.o.Path)), os.Remove(s.o.Path)))
	if _, err := Recover(ctx, s.o); !errdefs.IsNotFound(err) {
		t.Errorf("without a log: %v", err)
	}
}

func TestADamagedSnapshotIsKeptAndNotUsed(t *testing.T) {
	s := open(t, testOptions(t))
	awaitLog(t, s)
	makeReady(t, s, "box")
	must(t, s.Close())
	snapshots, err := filepath.Glob(filepath.Join(LogDir(s.o.Path), "snapshot-*"))
	must(t, err)
	b, err := os.ReadFile(snapshots[0])
	must(t, err)
	b[len(b)-1] ^= 1
	must(t, errors.Join(os.WriteFile(snapshots[0], b, 0o600), os.Remove(s.o.Path)))
	if _, err := Recover(ctx, s.o); !errdefs.IsNotFound(err) {
		t.Fatalf("recovered: %v", err)
	}
	kept, err := filepath.Glob(LogDir(s.o.Path) + ".damaged-*/snapshot-*")
	if err != nil || len(kept) != 1 {
		t.Errorf("kept are %v, %v", kept, err)
	}
}

// TestADatabaseOfBeforeTheLogGetsOne although it has no lineage.
func TestADatabaseOfBeforeTheLogGetsOne(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	must(t, s.update(ctx, func(t *txn) error { t.delete(bucketMeta, keyLineage); return nil }))
	must(t, s.Close())
	must(t, os.RemoveAll(LogDir(s.o.Path)))
	s = open(t, s.o)
	awaitLog(t, s)
	must(t, s.Close())
	wantReplay(t, s.o)
	s = open(t, s.o)
	create(t, s, "box-2")
	must(t, s.Close())
	wantReplay(t, s.o)
	if r := loseFile(t, s.o); r.Missing != "" || r.Sandboxes != 2 {
		t.Errorf("recovered %+v", r)
	}
}
