package recordfile

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func TestTenThousandExecsAreReadBackAndTheFileStaysBounded(t *testing.T) {
	d, root := newDir(t)
	d.Sandbox(record("box", 1))
	const n = 10_000
	want := make([]*storev1.ExecRecord, n)
	for i := range n {
		r := execRecord("box", execID(i))
		d.Exec("box", r)
		want[i] = ended(r)
		d.Exec("box", want[i])
	}
	path := fileOf(root, "box", execjournal.ExecsName)
	before := sizeOf(t, path)
	d.Flush()
	if after := sizeOf(t, path); after >= before || after != d.boxes["box"].execs.base+int64(len(endMark)) {
		t.Errorf("%d bytes, were %d", after, before)
	}
	wantOnly(t, root, record("box", 1), want...)
	d.Exec("box", execRecord("box", "one-more"))
	wantOnly(t, root, record("box", 1), append(want, execRecord("box", "one-more"))...)
	if _, err := os.Stat(fileOf(root, "box", execjournal.NewExecsName)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestAnOftenChangedRecordStaysSmall(t *testing.T) {
	d, root := newDir(t)
	path := fileOf(root, "box", execjournal.RecordName)
	for i := range 5000 {
		d.Sandbox(record("box", uint64(i+1)))
		if i%500 == 499 {
			d.Flush()
			if size := sizeOf(t, path); size > 66<<10 {
				t.Fatalf("%d bytes", size)
			}
		}
	}
	wantOnly(t, root, record("box", 5000))
}

func TestWhatComesDuringACompactionIsKept(t *testing.T) {
	d, root := newDir(t)
	big := record("box", 1)
	big.ErrorMessage = strings.Repeat("x", 5000)
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		b := d.box("box")
		for {
			select {
			case <-done:
				return
			default:
				must(t, ignoreGone(b.compact(&b.record)))
				must(t, ignoreGone(b.compact(&b.execs)))
			}
		}
	})
	const n = 3000
	var want []*storev1.ExecRecord
	for i := range n {
		big.LastSequence = uint64(i + 1)
		d.Sandbox(big)
		r := execRecord("box", execID(i%10))
		r.Request.Command = []string{strings.Repeat("y", 5000)}
		r.Desired.CreatedAt = int64(i)
		d.Exec("box", r)
		if i >= n-10 {
			want = append(want, r)
		}
	}
	close(done)
	wg.Wait()
	wantOnly(t, root, big, want...)
}

func ignoreGone(err error) error {
	if isGone(err) {
		return nil
	}
	return err
}

func TestACompactionAndGoneLeaveNothing(t *testing.T) {
	d, root := newDir(t)
	big := record("box", 1)
	big.ErrorMessage = strings.Repeat("x", 5000)
	for range 50 {
		for i := range 40 {
			big.LastSequence = uint64(i + 1)
			d.Sandbox(big)
		}
		b := d.box("box")
		var wg sync.WaitGroup
		wg.Go(func() { must(t, ignoreGone(b.compact(&b.record))) })
		d.Gone("box")
		wg.Wait()
		d.Flush()
		if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
			t.Fatalf("left are %v, %v", entries, err)
		}
	}
}
