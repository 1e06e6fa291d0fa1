package store

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// spoil closes s, replaces the record with bytes that do not decode, and reopens the store.
func spoil(t *testing.T, s *Store, bucket string, key []byte) *Store {
	t.Helper()
	must(t, s.Close())
	db, err := bolt.Open(s.o.Path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if b.Get(key) == nil {
			t.Fatalf("no record %q in %s", key, bucket)
		}
		return b.Put(key, []byte("\xff\xff\xff"))
	}))
	must(t, db.Close())
	return open(t, s.o)
}

func TestACorruptConfigIntentOrProgressIsQuarantined(t *testing.T) {
	for _, bucket := range []string{bucketConfig, bucketDesired, bucketProgress} {
		t.Run(bucket, func(t *testing.T) {
			var log bytes.Buffer
			o := testOptions(t)
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			s := open(t, o)
			_, err := s.CreateSandbox(ctx, "bad", "web", spec(), nil)
			must(t, err)
			report(t, s, "bad", phase(agboxv1.EventType_SANDBOX_READY, ready))
			must(t, s.Report(ctx, "bad", Report{Generation: 1, Progress: &storev1.Progress{HooksDone: 1}}))
			makeReady(t, s, "good")
			s = spoil(t, s, bucket, []byte("bad"))

			list, err := s.List(ctx, Filter{})
			if err != nil || len(list) != 2 {
				t.Fatalf("%v, %v", list, err)
			}
			bad, err := s.Sandbox(ctx, "bad")
			if !errdefs.IsDataLoss(err) || !bad.Corrupt || bad.State != ready || bad.LastSequence != 2 || bad.Name != "web" {
				t.Fatalf("%+v, %v", bad, err)
			}
			if ids := s.LiveIDs(); !slices.Equal(ids, []string{"good"}) {
				t.Fatalf("live: %v", ids)
			}
			for name, op := range writesTo("bad") {
				if err := op(s); !errdefs.IsDataLoss(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
			_, err = s.CreateSandbox(ctx, "other", "web", spec(), nil)
			refusedFor(t, err, "SANDBOX_NAME_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "sandbox name web already exists")
			if c := s.Corrupt(); len(c) != 1 || c[0].Bucket != bucket || c[0].SandboxID != "bad" {
				t.Fatalf("%v", c)
			}
			if n := strings.Count(log.String(), "does not decode"); n != 1 {
				t.Fatalf("logged %d times", n)
			}
			if n := len(allEvents(t, s, "bad")); n != 2 {
				t.Fatalf("%d events", n)
			}
			startExec(t, s, "good", "exec-1")
			s = reopen(t, s)
			if c := s.Corrupt(); len(c) != 1 {
				t.Fatalf("after reopen: %v", c)
			}
		})
	}
}

func writesTo(id string) map[string]func(*Store) error {
	return map[string]func(*Store) error{
		"stop":      func(s *Store) error { _, err := s.RequestStop(ctx, id, "x"); return err },
		"disk stop": func(s *Store) error { _, err := s.RequestDiskStop(ctx, id, time.Now(), "full"); return err },
		"idle stop": func(s *Store) error { _, err := s.RequestIdleStop(ctx, id, 1, s.moment()); return err },
		"resume":    func(s *Store) error { _, err := s.RequestResume(ctx, id); return err },
		"delete":    func(s *Store) error { _, err := s.RequestDelete(ctx, id, "x"); return err },
		"cleanup":   func(s *Store) error { _, err := s.RequestCleanup(ctx, id, 1, s.moment()); return err },
		"update":    func(s *Store) error { _, _, err := s.UpdateSpec(ctx, id, 0, setCPU(3)); return err },
		"exec":      func(s *Store) error { _, err := s.CreateExec(ctx, execRequest(id, "exec-9"), Caller{}); return err },
		"report": func(s *Store) error {
			return s.Report(ctx, id, Report{Generation: 1, Events: []*agboxv1.SandboxEvent{serviceEvent()}})
		},
	}
}

func TestACorruptEventHidesOnlyItself(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	report(t, s, "box", serviceEvent(), serviceEvent())
	s = spoil(t, s, prefixEvents+"box", encodeInt(4))
	if sb := get1(t, s, "box"); sb.State != ready || sb.LastSequence != 5 {
		t.Fatalf("%+v", sb)
	}
	if page, err := s.Events(ctx, "box", 0, 0); err != nil || len(page) != 3 {
		t.Fatalf("before it: %v, %v", page, err)
	}
	if _, err := s.Events(ctx, "box", 3, 0); !errdefs.IsDataLoss(err) {
		t.Fatalf("itself: %v", err)
	}
	if page, err := s.Events(ctx, "box", 4, 0); err != nil || len(page) != 1 {
		t.Fatalf("after it: %v, %v", page, err)
	}
	report(t, s, "box", serviceEvent())
	if c := s.Corrupt(); len(c) != 1 || c[0].Key != "4" {
		t.Fatalf("%v", c)
	}
}

func TestStateIsFoundWithoutItsHint(t *testing.T) {
	damage := map[string]struct {
		bucket string
		key    []byte
		at     time.Duration
	}{
		"the hint itself":        {bucketState, []byte("box"), time.Second},
		"the event it points to": {prefixEvents + "box", encodeInt(2), 2 * time.Second}, // the oldest readable event
	}
	for name, d := range damage {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			s := open(t, c.options(testOptions(t)))
			created := create(t, s, "box").CreatedAt
			c.pass(time.Second)
			report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
			c.pass(time.Second)
			report(t, s, "box", serviceEvent())
			s = spoil(t, s, d.bucket, d.key)
			sb := get1(t, s, "box")
			if sb.State != ready || sb.Corrupt || len(s.Corrupt()) != 1 || sb.StateChangedAt.Sub(created) != d.at {
				t.Fatalf("%+v, %v", sb, s.Corrupt())
			}
		})
	}
}

func TestCorruptExecRecords(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	for _, id := range []string{"exec-1", "exec-2", "exec-3"} {
		startExec(t, s, "box", id)
	}
	endExec(t, s, "exec-2")
	s = spoil(t, s, prefixExecConfig+"box", []byte("exec-1"))
	s = spoil(t, s, prefixExecStatus+"box", []byte("exec-2"))
	s = spoil(t, s, bucketExecRefs, []byte("exec-3"))
	if got := s.ActiveExecs("box"); !slices.Equal(got, []string{"exec-1", "exec-3"}) {
		t.Fatalf("active: %v", got)
	}
	for _, id := range []string{"exec-1", "exec-2"} {
		if _, err := s.Exec(ctx, id); !errdefs.IsDataLoss(err) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := s.Exec(ctx, "exec-3"); err != nil {
		t.Errorf("an active exec without ref: %v", err)
	}
	for _, id := range []string{"exec-1", "exec-2", "exec-3"} { // damage does not keep the sandbox from being deleted
		must(t, s.EndExec(ctx, id, finished()))
	}
	deleteIt(t, s, "box")
	must(t, s.PurgeSandbox(ctx, "box"))
}

func TestWithoutInstanceNothingIsServed(t *testing.T) {
	s := open(t, testOptions(t))
	must(t, s.Close())
	db, err := bolt.Open(s.o.Path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketMeta)).Delete([]byte(keyInstance)) }))
	must(t, db.Close())
	if _, err := Open(ctx, s.o); !errdefs.IsDataLoss(err) {
		t.Fatal(err)
	}
}

func TestACorruptRecordOfAnIntentWithoutMeaning(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	must(t, s.update(ctx, func(tx *txn) error { tx.put(bucketDesired, "box", &storev1.Desired{}); return nil }))
	s = reopen(t, s)
	if _, err := s.Sandbox(ctx, "box"); !errdefs.IsDataLoss(err) {
		t.Fatalf("an empty intent: %v", err)
	}
}
