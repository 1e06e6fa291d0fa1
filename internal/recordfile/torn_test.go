package recordfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// history writes some changes and returns the files, and where each frame ends.
func history(t *testing.T) (root string, records, execs []byte, recordEnds, execEnds []int64) {
	t.Helper()
	d, root := newDir(t)
	recordEnds, execEnds = []int64{0}, []int64{0}
	recordPath, execsPath := fileOf(root, "box", execjournal.RecordName), fileOf(root, "box", execjournal.ExecsName)
	for i := range 4 {
		d.Sandbox(record("box", uint64(i+1)))
		d.Exec("box", execRecord("box", execID(i)))
		mark := int64(len(endMark))
		recordEnds, execEnds = append(recordEnds, sizeOf(t, recordPath)-mark), append(execEnds, sizeOf(t, execsPath)-mark)
	}
	var err error
	records, err = os.ReadFile(recordPath)
	must(t, err)
	execs, err = os.ReadFile(execsPath)
	must(t, err)
	d.Flush()
	return root, records, execs, recordEnds, execEnds
}

// whole is how many frames end at n or before, and whether one ends there.
func whole(ends []int64, n int64) (frames int, exact bool) {
	for i, end := range ends {
		if end <= n {
			frames, exact = i, end == n
		}
	}
	return frames, exact
}

func TestAFileThatWasCutAnywhereGivesThePreviousGoodOne(t *testing.T) {
	root, records, execs, recordEnds, execEnds := history(t)
	recordPath, execsPath := fileOf(root, "box", execjournal.RecordName), fileOf(root, "box", execjournal.ExecsName)
	for n := int64(len(execs)); n >= 0; n-- {
		must(t, os.Truncate(execsPath, n))
		found, problems := read(t, root)
		frames, _ := whole(execEnds, n)
		all := n == int64(len(execs))
		if f := found["box"]; len(f.Execs) != frames || (len(problems) == 0) != all || f.TornExecs == all || f.Torn {
			t.Fatalf("cut to %d, %d frames: %v, problems %v", n, frames, f, problems)
		}
	}
	must(t, os.WriteFile(execsPath, execs, 0o600))
	for n := int64(len(records)); n >= 0; n-- {
		must(t, os.Truncate(recordPath, n))
		found, problems := read(t, root)
		frames, _ := whole(recordEnds, n)
		all := n == int64(len(records))
		f := found["box"]
		if f.Record.GetLastSequence() != uint64(frames) || (len(problems) == 0) != all || frames > 0 && f.Torn == all {
			t.Fatalf("cut to %d, %d frames: %v, problems %v", n, frames, f, problems)
		}
	}
}

func TestAFileWithAnyByteChangedGivesNoWrongRecord(t *testing.T) {
	root, records, execs, _, _ := history(t)
	for name, good := range map[string][]byte{execjournal.RecordName: records, execjournal.ExecsName: execs} {
		f, err := os.OpenFile(fileOf(root, "box", name), os.O_WRONLY, 0)
		must(t, err)
		defer f.Close()
		for i := range good {
			must(t, writeByte(f, i, good[i]^1<<(i%8)))
			found, problems := read(t, root)
			if len(problems) == 0 {
				t.Fatalf("%s with byte %d changed is no problem", name, i)
			}
			checkTrue(t, found["box"])
			must(t, writeByte(f, i, good[i]))
		}
	}
}

func writeByte(f *os.File, at int, b byte) error {
	_, err := f.WriteAt([]byte{b}, int64(at))
	return err
}

// checkTrue fails unless everything in f was true once.
func checkTrue(t *testing.T, f Found) {
	t.Helper()
	if f.Record == nil {
		return
	}
	if n := f.Record.GetLastSequence(); n < 1 || n > 4 || !proto.Equal(f.Record, record("box", n)) {
		t.Fatalf("a wrong record: %v", f.Record)
	}
	for i, e := range f.Execs {
		if !proto.Equal(e, execRecord("box", execID(i))) {
			t.Fatalf("a wrong exec: %v", e)
		}
	}
}

// After a crash anywhere in an append, the next process goes on behind what is good.
func TestTheNextProcessGoesOnBehindWhatIsGood(t *testing.T) {
	root, records, execs, recordEnds, execEnds := history(t)
	recordPath, execsPath := fileOf(root, "box", execjournal.RecordName), fileOf(root, "box", execjournal.ExecsName)
	for n := recordEnds[3]; n <= recordEnds[4]; n++ {
		must(t, os.WriteFile(recordPath, records[:n], 0o600))
		cut := min(execEnds[3]+n-recordEnds[3], execEnds[4])
		must(t, os.WriteFile(execsPath, execs[:cut], 0o600))
		d := New(root, quiet(), func(err error) { t.Error(err) })
		d.Sandbox(record("box", 5))
		d.Exec("box", ended(execRecord("box", execID(0))))
		d.Exec("box", execRecord("box", execID(3)))
		d.Exec("box", execRecord("box", execID(4)))
		want := []*storev1.ExecRecord{ended(execRecord("box", execID(0)))}
		for i := 1; i < 5; i++ {
			want = append(want, execRecord("box", execID(i)))
		}
		wantOnly(t, root, record("box", 5), want...)
	}
}

func TestAHoleOfAPowerFailureGivesThePreviousGoodOne(t *testing.T) {
	root, records, _, recordEnds, _ := history(t)
	clear(records[recordEnds[3]:])
	must(t, os.WriteFile(fileOf(root, "box", execjournal.RecordName), append(records, make([]byte, 4096)...), 0o600))
	found, problems := read(t, root)
	if f := found["box"]; f.Record.GetLastSequence() != 3 || !f.Torn || len(problems) != 1 || !errdefs.IsDataLoss(problems[0].Err) {
		t.Errorf("%v, %v", f, problems)
	}
}

func TestWhatIsNoRecordIsAProblemAndStopsNothing(t *testing.T) {
	encoded := func(f frame) []byte {
		b, err := encodeFrame(kindSandbox, f)
		must(t, err)
		return append(b, endMark...)
	}
	payload := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		must(t, err)
		return b
	}
	newer := record("box", 1)
	newer.Version = 2
	for name, c := range map[string]struct {
		make func(path string) error
		is   func(error) bool
	}{
		"of another sandbox":              {put(encoded(frame{1, payload(record("other", 1))})), errdefs.IsDataLoss},
		"of a later release":              {put(encoded(frame{2, []byte("who knows")})), errdefs.IsFailedPrecondition},
		"with a message of a later one":   {put(encoded(frame{1, payload(newer)})), errdefs.IsFailedPrecondition},
		"without a version":               {put(encoded(frame{0, payload(record("box", 1))})), errdefs.IsDataLoss},
		"empty":                           {put(nil), errdefs.IsDataLoss},
		"an exec":                         {put(must2(encodeFrame(kindExec, frame{1, payload(record("box", 1))}))), errdefs.IsDataLoss},
		"without a spec":                  {put(encoded(frame{1, payload(&storev1.SandboxRecord{Version: 1, SandboxId: "box"})})), errdefs.IsDataLoss},
		"no message":                      {put(encoded(frame{1, []byte{0xff}})), errdefs.IsDataLoss},
		"a huge length":                   {put([]byte("AGBS\x00\x00\x00\x01\xff\xff\xff\xff1234")), errdefs.IsDataLoss},
		"a length that is not there":      {put([]byte("AGBS\x00\x00\x00\x01\x00\xff\xff\xff1234")), errdefs.IsDataLoss},
		"a link":                          {func(path string) error { return os.Symlink("/etc/passwd", path) }, errdefs.IsDataLoss},
		"a directory":                     {func(path string) error { return os.Mkdir(path, 0o700) }, errdefs.IsDataLoss},
		"a FIFO":                          {mkfifo, errdefs.IsDataLoss},
		"missing, though there are execs": {func(string) error { return nil }, errdefs.IsDataLoss},
	} {
		t.Run(name, func(t *testing.T) {
			d, root := newDir(t)
			d.Sandbox(record("good", 1))
			must(t, os.Mkdir(filepath.Join(root, execjournal.RunName("box")), 0o700))
			must(t, os.WriteFile(fileOf(root, "box", execjournal.ExecsName), nil, 0o600))
			path := fileOf(root, "box", execjournal.RecordName)
			must(t, c.make(path))
			found, problems := read(t, root)
			if len(found) != 1 || len(problems) != 1 || problems[0].Path != path || !c.is(problems[0].Err) {
				t.Errorf("found %v, problems %v", found, problems)
			}
		})
	}
}

func TestADirectoryThatIsALinkIsNotFollowed(t *testing.T) {
	d, root := newDir(t)
	d.Sandbox(record("box", 1))
	dir, away := filepath.Join(root, execjournal.RunName("box")), filepath.Join(t.TempDir(), "away")
	must(t, os.Rename(dir, away))
	must(t, os.Symlink(away, dir))
	found, problems := read(t, root)
	if len(found) != 0 || len(problems) != 1 || !errdefs.IsDataLoss(problems[0].Err) {
		t.Errorf("found %v, problems %v", found, problems)
	}
	failed := 0
	d = New(root, quiet(), func(error) { failed++ })
	d.Sandbox(record("box", 2))
	if failed != 1 {
		t.Error("it was written through a link")
	}
}

func TestExecsOfALaterReleaseAreLeftOutAndKept(t *testing.T) {
	d, root := newDir(t)
	d.Sandbox(record("box", 1))
	path := fileOf(root, "box", execjournal.ExecsName)
	must(t, os.WriteFile(path, must2(encodeFrame(kindExec, frame{2, []byte("who knows")})), 0o600))
	d.Exec("box", execRecord("box", "a"))
	f, problems := read(t, root)
	if len(problems) != 1 || !errdefs.IsFailedPrecondition(problems[0].Err) || !f["box"].TornExecs {
		t.Errorf("problems %v, torn %v", problems, f["box"].TornExecs)
	}
	wantExecs(t, f["box"], execRecord("box", "a"))
}

func TestRootsWithoutRecordsAreEmpty(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, execjournal.RunName("inputs only")), 0o700))
	must(t, os.WriteFile(filepath.Join(root, "readme"), nil, 0o600))
	for _, dir := range []string{root, filepath.Join(root, "missing")} {
		if found, problems := read(t, dir); len(found)+len(problems) != 0 {
			t.Errorf("%s: %v, %v", dir, found, problems)
		}
	}
}

// A whole file may be an old one, that a file system has brought back.
func TestARecordThatIsOlderThanItsExecsIsTorn(t *testing.T) {
	d, root := newDir(t)
	d.Sandbox(record("box", 4))
	started, over := execRecord("box", "a"), ended(execRecord("box", "b"))
	started.Desired.StartedSequence, over.Desired.StartedSequence, over.End.Sequence = 4, 2, 3
	d.Exec("box", started)
	d.Exec("box", over)
	wantOnly(t, root, record("box", 4), started, over)
	over.End.Sequence = 5
	d.Exec("box", over)
	found, problems := read(t, root)
	if f := found["box"]; !f.Torn || f.TornExecs || len(problems) != 1 || !errdefs.IsDataLoss(problems[0].Err) {
		t.Errorf("%v, %v", f, problems)
	}
	d.Sandbox(record("box", 5))
	wantOnly(t, root, record("box", 5), started, over)
}

// A daemon with its database repairs torn files, also one that has the newest record.
func TestTheNextProcessMarksTheEndAgain(t *testing.T) {
	root, records, execs, recordEnds, execEnds := history(t)
	must(t, os.WriteFile(fileOf(root, "box", execjournal.RecordName), records[:recordEnds[4]], 0o600))
	must(t, os.WriteFile(fileOf(root, "box", execjournal.ExecsName), execs[:execEnds[4]], 0o600))
	d := New(root, quiet(), func(err error) { t.Error(err) })
	d.Sandbox(record("box", 4))
	want := make([]*storev1.ExecRecord, 4)
	for i := range want {
		want[i] = execRecord("box", execID(i))
		d.Exec("box", want[i])
	}
	wantOnly(t, root, record("box", 4), want...)
}
