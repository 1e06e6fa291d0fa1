package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

// victim is a closed database with content, which the tests damage repeatedly.
type victim struct {
	o    Options
	data []byte // all pages ever used
	live int
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	o := testOptions(t)
	s := open(t, o)
	fill(t, s, 60, func(i int) {
		makeReady(t, s, boxID(i))
		startExec(t, s, boxID(i), fmt.Sprint("e-", i))
	})
	var size int64
	must(t, s.view(ctx, func(tx *bolt.Tx) error { size = tx.Size(); return nil }))
	must(t, s.Close())
	data, err := os.ReadFile(o.Path)
	must(t, err)
	o.CheckProgram = childProgram(t, "check")
	return &victim{o, data[:size], 60}
}

// verdict opens the damaged file: either everything is there, or the damage is reported. It returns true in the first case.
func (v *victim) verdict(t *testing.T, what string, data []byte, size int64) (good bool) {
	t.Helper()
	must(t, os.WriteFile(v.o.Path, data, 0o600)) // the marker still records a clean end
	must(t, os.Truncate(v.o.Path, size))
	s, err := Open(ctx, v.o)
	if err != nil {
		if !errdefs.IsDataLoss(err) || errdefs.IsUnavailable(err) {
			t.Errorf("%s: %v", what, err)
		}
		return false
	}
	if ids, corrupt := s.LiveIDs(), s.Corrupt(); len(ids) != v.live || len(corrupt) > 0 {
		t.Errorf("%s: %d sandboxes of %d, corrupt are %v", what, len(ids), v.live, corrupt)
	}
	must(t, s.Close())
	return true
}

// TestADatabaseCutAnywhereIsWholeOrRefused tries 100 lengths, the edges and random ones; a third of them with -short.
func TestADatabaseCutAnywhereIsWholeOrRefused(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	size, page := int64(len(v.data)), int64(os.Getpagesize())
	lengths := []int64{0, 1, 1024, page - 1, page, page + 1, 2 * page, 3 * page, 4*page - 1, 4 * page, size - page, size - 1, size, size + 1, size + page}
	for range inShort(18, 85) {
		lengths = append(lengths, rand.Int64N(size+size/4))
	}
	for _, n := range lengths {
		good := v.verdict(t, fmt.Sprintf("%d bytes of %d", n, size), v.data[:min(n, size)], n)
		if good != (n >= size) {
			t.Errorf("%d bytes of %d: whole is %v", n, size, good)
		}
	}
}

// TestADatabaseWithAPageOfZerosIsWholeOrRefused. One of the two meta pages is enough: without the other, at most an unacknowledged
// transaction is lost. Free pages hold nothing.
func TestADatabaseWithAPageOfZerosIsWholeOrRefused(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	page := os.Getpagesize()
	refused := 0
	for at := 0; at < len(v.data); at += page {
		if at >= 20*page && rand.IntN(4) > 0 {
			continue
		}
		data := append([]byte(nil), v.data...)
		clear(data[at : at+page])
		if !v.verdict(t, fmt.Sprintf("page %d", at/page), data, int64(len(data))) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no page was missed")
	}
}

// TestAHalfWrittenMetaPageIsNoLoss: Open uses the previous transaction.
func TestAHalfWrittenMetaPageIsNoLoss(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	page := os.Getpagesize()
	for _, at := range []int{0, page} {
		for _, torn := range []int{17, 30, 50, 70} {
			data := append([]byte(nil), v.data...)
			for i := at + torn; i < at+80; i++ {
				data[i] ^= 0xA5
			}
			if !v.verdict(t, fmt.Sprintf("meta page at %d torn after %d bytes", at, torn), data, int64(len(data))) {
				t.Errorf("meta page at %d torn after %d bytes: refused", at, torn)
			}
		}
	}
	data := append([]byte(nil), v.data...)
	clear(data[20:60])
	clear(data[page+20 : page+60])
	if v.verdict(t, "both meta pages torn", data, int64(len(data))) {
		t.Error("opened without a meta page")
	}
}

// TestACleanEndCountsForTheFileThatWasClosedOnly: another file in its place is checked.
func TestACleanEndCountsForTheFileThatWasClosedOnly(t *testing.T) {
	o := testOptions(t)
	s := open(t, o)
	create(t, s, "box")
	must(t, s.Close())
	o.CheckProgram = childProgram(t, "never")
	must(t, open(t, o).Close())
	data, err := os.ReadFile(o.Path)
	must(t, err)
	must(t, os.WriteFile(o.Path+".copy", data, 0o600))
	must(t, os.Rename(o.Path+".copy", o.Path))
	if _, err := Open(ctx, o); !errdefs.IsDataLoss(err) {
		t.Fatalf("a copy was not checked: %v", err)
	}
	o.CheckProgram = childProgram(t, "check")
	must(t, open(t, o).Close())
	o.CheckProgram = childProgram(t, "never")
	open(t, o)
}
