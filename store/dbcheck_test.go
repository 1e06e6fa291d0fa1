package store

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func findings(t testing.TB, path string) []string {
	t.Helper()
	var all []string
	must(t, CheckFile(path))
	must(t, CheckRecords(path, func(f Finding) { all = append(all, f.String()) }))
	return append(all, audited(t, path)...)
}

// checkDatabase fails the test on any finding.
func checkDatabase(t testing.TB, path string) {
	t.Helper()
	if all := findings(t, path); len(all) > 0 {
		t.Fatalf("%d findings:\n%s", len(all), strings.Join(all[:min(len(all), 10)], "\n"))
	}
}

// TestTheCheckFindsNothingInWhatTheStoreWrote checks files after random requests.
func TestTheCheckFindsNothingInWhatTheStoreWrote(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := testOptions(t)
		c := newClock()
		s, err := Open(ctx, c.options(o))
		must(t, err)
		m := &machine{t: rt, tb: t, s: s, clock: c, model: model{map[string]*modelSandbox{}, map[string]bool{}, map[string]string{}}}
		action := func(fn func()) func(*rapid.T) {
			return func(rt *rapid.T) { m.t = rt; c.pass(time.Second); fn() }
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create": action(m.create), "stop": action(m.stop), "resume": action(m.resume), "delete": action(m.delete),
			"report": action(m.report), "report again": action(m.report), "exec": action(m.exec), "exec again": action(m.exec),
			"end exec": action(m.endExec), "end exec again": action(m.endExec), "purge": action(m.purge),
			"reopen": action(m.reopen), "update": action(m.updateSpec), "limit": action(m.setLimit),
		})
		must(t, m.s.Close())
		if all := findings(t, o.Path); len(all) > 0 {
			rt.Fatalf("findings:\n%s", strings.Join(all, "\n"))
		}
	})
}

// sound returns a closed database with one of everything, and an interrupted purge.
func sound(t *testing.T) string {
	t.Helper()
	o := newClock().options(testOptions(t))
	s, err := Open(ctx, o)
	must(t, err)
	oneOfEverything(t, s)
	makeReady(t, s, "two")
	for _, id := range []string{"e-active", "e-ended"} {
		startExec(t, s, "two", id)
	}
	endExec(t, s, "e-ended")
	makeDeleted(t, s, "half")
	must(t, s.update(ctx, func(tx *txn) error { return tx.beginPurge("half") }))
	must(t, s.Close())
	return o.Path
}

func message(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := encode(m)
	must(t, err)
	return b
}

// TestTheCheckFindsEachKindOfDamage: one change, and a finding of the check or of the auditor that names its place.
func TestTheCheckFindsEachKindOfDamage(t *testing.T) {
	junk := []byte("\xff\xff\xff")
	event := func(seq uint64, typ agboxv1.EventType, state agboxv1.SandboxState) []byte {
		ev := phase(typ, state)
		ev.Sequence, ev.SandboxId, ev.EventId = seq, "two", "two-9"
		return message(t, ev)
	}
	for name, row := range map[string]struct {
		bucket, key string
		value       []byte // nil: the record is removed
		want        string
	}{
		"no instance":                     {bucketMeta, keyInstance, nil, "meta/instance: Instance is missing"},
		"an instance without a UUID":      {bucketMeta, keyInstance, []byte{}, "meta/instance: there is no UUID"},
		"a marker of another width":       {bucketMeta, keyEngineMarker, junk, "meta/engine-marker: integer of 3 bytes"},
		"a rebuild of another width":      {bucketMeta, keyRebuild, junk, "meta/rebuild: integer of 3 bytes"},
		"rebuilt in the middle":           {prefixEvents + "two", string(encodeInt(2)), event(2, agboxv1.EventType_SANDBOX_REHYDRATED, pending), "events:two/2: a rebuilt record begins with it, and there are events before it"},
		"rebuilt and not said":            {prefixEvents + "two", string(encodeInt(2)), event(2, agboxv1.EventType_SANDBOX_REHYDRATED, pending), "sandbox-desired/two: that the record was rebuilt is false, and the events say true"},
		"an ID that is not reserved":      {bucketSandboxID, "two", nil, "I2 sandbox two: its ID is not reserved"},
		"a reservation of another width":  {bucketExecID, "e-active", junk, "exec-ids/e-active: integer of 3 bytes"},
		"an exec ID that is not reserved": {bucketExecID, "e-active", nil, "I2 exec e-active: its ID is not reserved"},
		"a config that does not decode":   {bucketConfig, "two", junk, "sandbox-config/two: decode CreateSpec"},
		"no config":                       {bucketConfig, "two", nil, "sandbox-config/two: CreateSpec is missing"},
		"no desired state":                {bucketDesired, "two", nil, "sandbox-desired/two: Desired is missing"},
		"an empty desired state":          {bucketDesired, "two", []byte{}, "sandbox-desired/two: no intent in it"},
		"a progress that does not decode": {bucketProgress, "box", junk, "sandbox-progress/box: decode Progress"},
		"no state":                        {bucketState, "two", nil, "sandbox-state/two: record is missing"},
		"a state of another event":        {bucketState, "two", encodeInt(1), "I5 sandbox two: the state is recorded to begin with event 1"},
		"a name without a sandbox":        {bucketNames, "free", message(t, &storev1.NameRef{SandboxId: "none"}), `I3 name free: sandbox "none" holds it, which is not live`},
		"a name of another":               {bucketNames, "web", message(t, &storev1.NameRef{SandboxId: "two"}), `I3 sandbox box: its name "web" is held by "two"`},
		"a name without a holder":         {bucketNames, "web", nil, `I3 sandbox box: its name "web" is held by ""`},
		"an event that does not decode":   {prefixEvents + "two", string(encodeInt(2)), junk, "events:two/2: decode SandboxEvent"},
		"an event of another place":       {prefixEvents + "two", string(encodeInt(3)), event(9, agboxv1.EventType_SANDBOX_READY, ready), "events:two/3: it says that it is event 9"},
		"an event with another ID":        {prefixEvents + "two", string(encodeInt(3)), event(3, agboxv1.EventType_SANDBOX_READY, ready), `I4 sandbox two: event 3 says that it is "two-9"`},
		"a gap":                           {prefixEvents + "two", string(encodeInt(2)), nil, "I4 sandbox two: event 3 follows event 1"},
		"no first event":                  {prefixEvents + "two", string(encodeInt(1)), nil, "I4 sandbox two: its first event is 2"},
		"a gap after what was trimmed":    {bucketTrimmed, "box", encodeInt(1), "I4 sandbox box: event 4 follows event 2, and events up to 1 were dropped"},
		"a gap that is not recorded":      {bucketTrimmed, "box", nil, "I4 sandbox box: event 4 follows event 2, and events up to 0 were dropped"},
		"trimmed past the end":            {bucketTrimmed, "two", encodeInt(99), "I4 sandbox two: events up to 99 were dropped by the bound, and the newest is 6"},
		"trimmed and there":               {bucketTrimmed, "two", encodeInt(2), "sandbox-trimmed/two: event 2 went, it says, and it is there"},
		"deleted while it lives":          {bucketDeletedAt, "two", encodeInt(1), "I5 sandbox two: its deletion is recorded: true, and its state is SANDBOX_STATE_READY"},
		"deleted and not said":            {bucketDeletedAt, "gone", nil, "I5 sandbox gone: its deletion is recorded: false"},
		"no reference to an exec":         {bucketExecRefs, "e-active", nil, `I6 exec e-active: it is referred to as of sandbox "", and is in sandbox two`},
		"a reference elsewhere":           {bucketExecRefs, "e-active", message(t, &storev1.ExecRef{SandboxId: "box"}), `I6 exec e-active: it is referred to as of sandbox "box", and is in sandbox two`},
		"a reference to nothing":          {bucketExecRefs, "e-none", message(t, &storev1.ExecRef{SandboxId: "box"}), "I6 exec e-none: it is referred to as of sandbox box, which has no such exec"},
		"an exec of another place":        {prefixExecConfig + "two", "e-active", message(t, execRequest("box", "e-active")), `I6 exec e-active: its request says exec "e-active" of sandbox "box"`},
		"no intent of an exec":            {prefixExecDesired + "two", "e-active", nil, "exec-desired:two/e-active: ExecDesired is missing"},
		"an exec that began elsewhere": {prefixExecDesired + "two", "e-active", message(t, &storev1.ExecDesired{Nonce: "n", StartedSequence: 3}),
			"I6 exec e-active: it is recorded to start with event 3, and it starts with event 4"},
		"an exec that began never": {prefixExecDesired + "two", "e-active", message(t, &storev1.ExecDesired{Nonce: "n"}), "I6 exec e-active: it is recorded to start with event 0"},
		"no exec of an intent":     {prefixExecConfig + "two", "e-active", nil, "exec-config:two/e-active: CreateExecRequest is missing"},
		"an end without an event":  {prefixExecStatus + "two", "e-active", message(t, finished()), "exec-status:two/e-active: it ended with event 0 and began with 4"},
		"an event without an end":  {prefixExecStatus + "two", "e-ended", nil, "I6 exec e-ended: event 6 reports its end, and none is on record"},
		"an end that is none":      {prefixExecStatus + "two", "e-ended", message(t, &storev1.ExecEnd{State: 1, Sequence: 6}), "exec-status:two/e-ended: no end in it"},
		"another end than in the event": {prefixExecStatus + "two", "e-ended", message(t, &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_CANCELLED), Sequence: 6}),
			"I6 exec e-ended: its end is recorded as EXEC_STATE_CANCELLED, and event 6 says EXEC_FINISHED"},
		"a key that is no sequence": {prefixEvents + "two", "zz", junk, "events:two/7a7a: integer of 2 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := sound(t)
			checkDatabase(t, path)
			change(t, path, row.bucket, row.key, row.value)
			all := findings(t, path)
			if len(all) == 0 || !strings.Contains(strings.Join(all, "\n"), row.want) {
				t.Errorf("%s is not in\n%s", row.want, strings.Join(all, "\n"))
			}
		})
	}
}

// change puts one record, or removes it if value is nil.
func change(t testing.TB, path, bucket, key string, value []byte) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil || value != nil {
			return b.Put([]byte(key), value)
		}
		if b.Get([]byte(key)) == nil {
			t.Fatalf("no record %q in %s", key, bucket)
		}
		return b.Delete([]byte(key))
	}))
	must(t, db.Close())
}

func TestTheCheckRefusesWhatItCannotJudge(t *testing.T) {
	t.Parallel() // it waits for a lock
	path := sound(t)
	change(t, path, bucketMeta, keySchema, encodeInt(99))
	if err := CheckRecords(path, func(Finding) {}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a newer file: %v", err)
	}
	if err := CheckRecords(path+"x", func(Finding) {}); !errdefs.IsNotFound(err) {
		t.Errorf("no file: %v", err)
	}
	s := open(t, testOptions(t))
	if err := CheckRecords(s.o.Path, func(Finding) {}); !errdefs.IsUnavailable(err) {
		t.Errorf("an open one: %v", err)
	}
}

// TestCompacting keeps every record, also empty ones, and frees unused pages.
func TestCompacting(t *testing.T) {
	path := sound(t)
	change(t, path, bucketProgress, "two", []byte{}) // as after a resume
	change(t, path, "ballast", "x", make([]byte, 8<<20))
	change(t, path, "ballast", "x", nil)
	want := contents(t, path)
	o, err := LockOffline(ctx, path)
	must(t, err)
	to := path + ".compact"
	must(t, os.WriteFile(to, []byte("left by a crash"), 0o600))
	before, after, err := o.CompactTo(to)
	must(t, err)
	if before < 8<<20 || after > 1<<20 {
		t.Errorf("%d bytes before, %d after", before, after)
	}
	must(t, o.Install(to))
	must(t, o.Close())
	checkDatabase(t, path)
	got := contents(t, path)
	if len(got) != len(want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
	for key, value := range want {
		if have, ok := got[key]; !ok || have != value {
			t.Errorf("%q is %q, want %q", key, have, value)
		}
	}
	s, err := Open(ctx, Options{Path: path, InitialMmapSize: 64 << 20})
	must(t, err)
	must(t, s.Close())
}

func contents(t testing.TB, path string) map[string]string {
	t.Helper()
	all := map[string]string{}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	must(t, err)
	must(t, db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error { all[string(name)+"/"+string(k)] = string(v); return nil })
		})
	}))
	must(t, db.Close())
	return all
}

func TestOfflineKeepsOthersOut(t *testing.T) {
	t.Parallel() // it waits for a lock
	path := sound(t)
	o, err := LockOffline(ctx, path)
	must(t, err)
	if _, err := Open(ctx, Options{Path: path, LockTimeout: time.Millisecond}); !errdefs.IsUnavailable(err) {
		t.Errorf("a daemon got in: %v", err)
	}
	now := time.Unix(1_700_000_000, 0)
	for _, want := range []string{".why-20231114T221320Z", ".why-20231114T221320Z-1"} {
		if as, err := o.SetAside("why", now); err != nil || as != path+want {
			t.Errorf("kept as %s, %v", as, err)
		}
	}
	must(t, o.Close())
	s, err := Open(ctx, Options{Path: path, InitialMmapSize: 64 << 20})
	must(t, err)
	if _, err := LockOffline(ctx, path); !errdefs.IsUnavailable(err) {
		t.Errorf("beside a daemon: %v", err)
	}
	must(t, s.Close())
}
