package txlog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// state is a database: "bucket/key" to value, and "bucket/" for a bucket.
type state map[string]string

func (s state) apply(ops []Op) error {
	for _, op := range ops {
		bucket := op.Bucket + "/"
		switch op.Kind {
		case MakeBucket:
			s[bucket] = ""
		case Put:
			s[bucket], s[bucket+string(op.Key)] = "", string(op.Value)
		case Delete:
			delete(s, bucket+string(op.Key))
		case DropBucket:
			maps.DeleteFunc(s, func(k, _ string) bool { return strings.HasPrefix(k, bucket) })
		}
	}
	return nil
}

func (s state) each(yield func(Op) error) error {
	for _, k := range slices.Sorted(maps.Keys(s)) {
		bucket, key, _ := strings.Cut(k, "/")
		op := Op{Put, bucket, []byte(key), []byte(s[k])}
		if len(key) == 0 {
			op = Op{Kind: MakeBucket, Bucket: bucket}
		}
		if err := yield(op); err != nil {
			return err
		}
	}
	return nil
}

// database is a Log and the state that its replay should restore.
type database struct {
	testing.TB
	log  *Log
	o    Options
	is   state
	txid uint64
	past []state // by transaction
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const boot = "00000000-0000-0000-0000-000000000001"

func newDatabase(t testing.TB) *database {
	t.Helper()
	d := &database{TB: t, o: Options{Dir: filepath.Join(t.TempDir(), "log"), Lineage: 7, Boot: boot}, is: state{}, past: []state{{}}}
	d.open(false)
	d.snapshot()
	return d
}

func (d *database) open(wantWhole bool) {
	d.Helper()
	l, whole, err := Open(d.o, d.txid)
	must(d, err)
	if whole != wantWhole {
		d.Fatalf("whole is %t at %d", whole, d.txid)
	}
	d.log = l
}

func (d *database) snapshot() {
	d.Helper()
	n, err := d.log.Rotate()
	must(d, err)
	must(d, d.log.WriteSnapshot(n, d.txid, d.is.each))
}

// commit makes a transaction and appends it to the log.
func (d *database) commit(ops ...Op) error {
	d.txid++
	must(d, d.is.apply(ops))
	d.past = append(d.past, maps.Clone(d.is))
	return d.log.Append(d.txid, func(yield func(Op)) {
		for _, op := range ops {
			yield(op)
		}
	})
}

func put(bucket, key, value string) Op { return Op{Put, bucket, []byte(key), []byte(value)} }

// some commits n transactions with all kinds of operations.
func (d *database) some(n int) {
	d.Helper()
	for range n {
		i := d.txid
		ops := []Op{put("a", fmt.Sprint("k", i%5), fmt.Sprint(i)), put(fmt.Sprint("b", i%3), "k", "")}
		if i%4 == 3 {
			ops = append(ops, Op{Kind: Delete, Bucket: "a", Key: []byte("k1")}, Op{Kind: DropBucket, Bucket: "b1"})
		}
		must(d, d.commit(ops...))
	}
}

// replay returns the state restored from the newest usable snapshot.
func replay(t testing.TB, dir, boot string) (state, Result, bool) {
	t.Helper()
	list, err := Snapshots(dir)
	must(t, err)
	for _, n := range list {
		s := state{}
		r, err := Replay(dir, n, boot, s.apply)
		if err == nil {
			return s, r, true
		}
		if !errdefs.IsDataLoss(err) {
			t.Fatal(err)
		}
	}
	return nil, Result{}, false
}

func (d *database) want(what string) {
	d.Helper()
	s, r, ok := replay(d, d.o.Dir, boot)
	if !ok || r.Missing != "" || r.Txid != d.txid || r.Lineage != d.o.Lineage || !maps.Equal(s, d.is) {
		d.Fatalf("%s: replayed %t %+v %v, want %v of %d", what, ok, r, s, d.is, d.txid)
	}
}

// wantPast checks that a replay restores the state after some transaction, and reports itself complete only for the last one.
func (d *database) wantPast(what string) (missing string) {
	d.Helper()
	s, r, ok := replay(d, d.o.Dir, boot)
	switch {
	case !ok:
		return "no snapshot"
	case r.Txid > d.txid, !maps.Equal(s, d.past[r.Txid]):
		d.Fatalf("%s: transaction %d is %v", what, r.Txid, s)
	case r.Missing == "" && r.Txid != d.txid:
		d.Fatalf("%s: it is taken for complete at %d of %d", what, r.Txid, d.txid)
	}
	return r.Missing
}

func TestALogSurvivesClosesKillsAndSnapshots(t *testing.T) {
	d := newDatabase(t)
	d.want("empty")
	for round := range 3 {
		d.some(7)
		d.want("appended")
		must(t, d.log.Sync())
		d.open(true) // as after a kill
		d.some(3)
		must(t, d.log.Close())
		d.want("closed")
		d.open(true)
		d.some(3)
		n, err := d.log.Rotate()
		must(t, err)
		d.some(4)
		d.want("rotated, without a snapshot")
		must(t, d.log.WriteSnapshot(n, d.txid, d.is.each)) // it covers a part of its segment
		d.some(2)
		d.want("with a snapshot")
		if names, err := os.ReadDir(d.o.Dir); err != nil || len(names) != 4 || snapshotName(uint32(round)+1) != names[2].Name() {
			t.Fatalf("the files are %v, %v", names, err)
		}
	}
	for _, e := range []string{snapshotName(d.log.number), segmentName(d.log.number)} {
		if info, err := os.Stat(filepath.Join(d.o.Dir, e)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e, info, err)
		}
	}
}

// TestATruncatedLogReplaysAnEarlierState truncates each file at each length, and flips each byte once.
func TestATruncatedLogReplaysAnEarlierState(t *testing.T) {
	d := newDatabase(t)
	d.some(5)
	n, err := d.log.Rotate()
	must(t, err)
	d.some(5)
	names, err := filepath.Glob(filepath.Join(d.o.Dir, "*"))
	must(t, err)
	if len(names) != 3 {
		t.Fatalf("files %v, segment %d", names, n)
	}
	d.want("whole")
	for _, name := range names {
		whole, err := os.ReadFile(name)
		must(t, err)
		look := func(what string, b []byte) {
			must(t, os.WriteFile(name, b, 0o600))
			if d.wantPast(what) == "" {
				t.Fatalf("%s of %s: nothing is missing, it says", what, filepath.Base(name))
			}
		}
		for i := range whole {
			look(fmt.Sprintf("cut at %d of %d", i, len(whole)), whole[:i])
			bad := slices.Clone(whole)
			bad[i] ^= 1 << (i % 8)
			look(fmt.Sprintf("a bit at %d of %d", i, len(whole)), bad)
		}
		look("a byte more", append(slices.Clone(whole), 0))
		must(t, os.Remove(name))
		if d.wantPast("without "+name) == "" {
			t.Fatalf("without %s: nothing is missing, it says", name)
		}
		must(t, os.WriteFile(name, whole, 0o600))
	}
	d.want("whole again")
}

func TestARestartOfTheHostMayHaveCostTheEnd(t *testing.T) {
	d := newDatabase(t)
	d.some(3)
	const other = "00000000-0000-0000-0000-000000000002"
	if _, r, _ := replay(t, d.o.Dir, other); r.Missing == "" {
		t.Error("not closed, and complete in another boot")
	}
	d.o.Boot = other
	d.open(false)
	must(t, d.log.Close())
	d.snapshot()
	d.some(1)
	must(t, d.log.Close())
	if _, r, _ := replay(t, d.o.Dir, boot); r.Missing != "" {
		t.Errorf("closed, and %s", r.Missing)
	}
	d.o.Boot = boot
	d.open(true)
	if _, r, _ := replay(t, d.o.Dir, other); r.Missing == "" {
		t.Error("opened again, and complete in another boot")
	}
}

func TestALogOfAnotherStateIsNotContinued(t *testing.T) {
	d := newDatabase(t)
	d.some(3)
	must(t, d.log.Close())
	d.txid++ // committed; then the process died
	d.past = append(d.past, d.is)
	d.open(false)
	must(t, d.log.Close())
	d.o.Lineage++
	d.txid--
	d.open(false)
	d.snapshot()
	d.want("another lineage")
}

// TestAfterAGapNothingIsReplayed until the next snapshot.
func TestAfterAGapNothingIsReplayed(t *testing.T) {
	for _, rotated := range []bool{false, true} {
		d := newDatabase(t)
		d.log.o.MaxTransaction = 100
		d.some(3)
		at := d.txid
		if err := d.commit(put("a", "k", string(make([]byte, 200)))); err == nil || errors.Is(err, ErrGap) {
			t.Fatalf("too large: %v", err)
		}
		if err := d.commit(put("a", "k", "")); !errors.Is(err, ErrGap) || d.log.State().Whole || d.log.State().Appendable {
			t.Fatalf("behind a gap: %v", err)
		}
		if rotated {
			_, err := d.log.Rotate()
			must(t, err)
			d.some(1)
		}
		if _, r, _ := replay(t, d.o.Dir, boot); r.Missing == "" || r.Txid != at {
			t.Fatalf("replayed %+v", r)
		}
		if d.log.State().Whole {
			t.Fatal("whole")
		}
		d.snapshot()
		d.some(1)
		d.want("after a snapshot")
	}
}

// TestADeathInASnapshotCostsNothing: a crash leaves the older snapshot with both segments, or the newer one.
func TestADeathInASnapshotCostsNothing(t *testing.T) {
	d := newDatabase(t)
	d.some(3)
	_, err := d.log.Rotate()
	must(t, err)
	d.some(2)
	must(t, os.WriteFile(filepath.Join(d.o.Dir, snapshotName(d.log.number)+tmpSuffix), []byte("half"), 0o600))
	d.want("in the middle")
	d.open(false) // so that a snapshot is written
	d.snapshot()
	d.some(1)
	d.want("after it")
	failed := errors.New("no room")
	n, err := d.log.Rotate()
	must(t, err)
	if err := d.log.WriteSnapshot(n, d.txid, func(func(Op) error) error { return failed }); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	d.some(1)
	d.want("after one that failed")
}

// TestADamagedSnapshotCostsNothing: the previous snapshot restores the same database, wherever the newest one is damaged, or if it is
// missing.
func TestADamagedSnapshotCostsNothing(t *testing.T) {
	d := newDatabase(t)
	for range 3 {
		d.some(5)
		d.snapshot()
	}
	d.some(5)
	must(t, d.log.Close())
	path := filepath.Join(d.o.Dir, snapshotName(d.log.number))
	whole, err := os.ReadFile(path)
	must(t, err)
	for at := range whole {
		damaged := slices.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		must(t, os.WriteFile(path, damaged, 0o600))
		d.want(fmt.Sprint("a bit wrong at ", at))
	}
	must(t, os.Remove(path))
	d.want("without the newest snapshot")
}

// TestASnapshotOfAnotherFileDoesNotStay next to the newest one.
func TestASnapshotOfAnotherFileDoesNotStay(t *testing.T) {
	d := newDatabase(t)
	d.some(5)
	must(t, d.log.Close())
	d.o.Lineage++
	d.open(false)
	d.snapshot()
	if names, err := os.ReadDir(d.o.Dir); err != nil || len(names) != 2 {
		t.Fatalf("the files are %v, %v", names, err)
	}
	d.want("of the new file")
}

func TestRemoveLeavesNothingToReplay(t *testing.T) {
	d := newDatabase(t)
	d.some(3)
	must(t, Remove(d.o.Dir))
	if names, err := os.ReadDir(d.o.Dir); err != nil || len(names) > 0 {
		t.Errorf("left are %v, %v", names, err)
	}
	must(t, Remove(filepath.Join(d.o.Dir, "none")))
}

// TestAnyDamageInAnyOrder damages several files at once.
func TestAnyDamageInAnyOrder(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newDatabase(t)
		for range 3 {
			d.some(r.IntN(6))
			if r.IntN(2) == 0 {
				d.snapshot()
			} else {
				_, err := d.log.Rotate()
				must(t, err)
			}
		}
		d.some(1)
		names, err := filepath.Glob(filepath.Join(d.o.Dir, "*"))
		must(t, err)
		for range 1 + r.IntN(3) {
			name := names[r.IntN(len(names))]
			b, err := os.ReadFile(name)
			if err != nil {
				continue // removed by an earlier round
			}
			switch at := r.IntN(len(b) + 1); r.IntN(4) {
			case 0:
				must(t, os.Truncate(name, int64(at)))
			case 1:
				must(t, os.Remove(name))
			case 2:
				clear(b[at:])
				must(t, os.WriteFile(name, b, 0o600))
			case 3:
				must(t, os.WriteFile(name, append(b, b[:at]...), 0o600))
			}
		}
		d.wantPast(fmt.Sprint("seed ", seed))
	}
}

// FuzzReplay replays arbitrary bytes as a snapshot and as a segment: no panic, and no errors except errDamaged.
func FuzzReplay(f *testing.F) {
	d := newDatabase(f)
	d.some(3)
	for _, name := range []string{snapshotName(d.log.number), segmentName(d.log.number)} {
		b, err := os.ReadFile(filepath.Join(d.o.Dir, name))
		must(f, err)
		f.Add(b)
	}
	snapshot, err := os.ReadFile(filepath.Join(d.o.Dir, snapshotName(d.log.number)))
	must(f, err)
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		for _, content := range [][]byte{b, snapshot} {
			must(t, os.WriteFile(filepath.Join(dir, snapshotName(1)), content, 0o600))
			must(t, os.WriteFile(filepath.Join(dir, segmentName(1)), b, 0o600))
			if _, err := Replay(dir, 1, boot, state{}.apply); err != nil && !errdefs.IsDataLoss(err) {
				t.Fatal(err)
			}
		}
	})
}
