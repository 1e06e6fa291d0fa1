package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

const instance = "0e12dd5b-58f1-4a5c-8d6b-3f5f9a1c2b3d"

// records is a store with one sandbox, "box", and its execs.
type records struct {
	database []byte
	execs    []string
}

func (r records) InstanceID() string { return instance }

func (r records) Snapshot(_ context.Context, f *os.File) (uint64, error) {
	_, err := f.Write(r.database)
	return 7, err
}

func (r records) ExecIDs(_ context.Context, sandboxID, after string) ([]string, error) {
	if sandboxID != "box" {
		return nil, nil
	}
	i, found := slices.BinarySearch(r.execs, after)
	if found {
		i++
	}
	return r.execs[i:min(i+2, len(r.execs))], nil
}

func maker(t *testing.T, r records) *Maker {
	t.Helper()
	logs := filepath.Join(t.TempDir(), "logs")
	if err := os.MkdirAll(filepath.Join(logs, "box"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Maker{
		Records: r, DataDir: t.TempDir(), LogRoot: logs, LogLimit: func() int64 { return 1000 },
		MainFiles: []string{"_main.log"}, ExecFiles: func(id string) []string { return []string{id + ".log"} },
	}
}

func (m *Maker) put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.LogRoot, name), []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

func (m *Maker) made(t *testing.T, withLogs bool) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.Write(t.Context(), &b, withLogs); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(m.DataDir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return b.Bytes()
}

func reopened(t *testing.T, b []byte) *File {
	t.Helper()
	f, err := Open(t.Context(), bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func logsOf(t *testing.T, f *File) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := f.EachLog(t.Context(), func(l Log, r io.Reader) error {
		text, err := io.ReadAll(r)
		got[l.Sandbox+"/"+l.File] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	m := maker(t, records{database: []byte("the database"), execs: []string{"a", "b", "c", "d", "e"}})
	for _, id := range []string{"a", "c", "e"} {
		m.put(t, "box/"+id+".log", "log of "+id)
	}
	m.put(t, "box/_main.log", "main")
	m.put(t, "box/stray.log", "nobody's")
	before := time.Now()
	f := reopened(t, m.made(t, true))
	if f.Schema != 7 || f.Instance != instance || f.DatabaseBytes != 12 || !f.WithLogs || f.Created.Before(before) || f.Created.After(time.Now()) {
		t.Errorf("header %+v", f.Header)
	}
	var db bytes.Buffer
	if err := f.ExtractDatabase(t.Context(), &db); err != nil || db.String() != "the database" {
		t.Errorf("database %q, %v", db.String(), err)
	}
	got := logsOf(t, f)
	if len(got) != 4 || got["box/a.log"] != "log of a" || got["box/e.log"] != "log of e" || got["box/_main.log"] != "main" {
		t.Errorf("logs %q", got)
	}
	if f := reopened(t, m.made(t, false)); f.WithLogs || len(logsOf(t, f)) != 0 {
		t.Errorf("without logs: %+v", f.Header)
	}
}

// TestDamageIsAlwaysFound flips bits and truncates the file at every kind of position.
func TestDamageIsAlwaysFound(t *testing.T) {
	database := make([]byte, 70_000)
	for i := range database {
		database[i] = byte(rand.Uint32())
	}
	m := maker(t, records{database: database, execs: []string{"a", "b"}})
	m.put(t, "box/a.log", strings.Repeat("a", 900))
	whole := m.made(t, true)
	refused := func(what string, at int, b []byte) {
		t.Helper()
		_, err := Open(t.Context(), bytes.NewReader(b), int64(len(b)))
		if err == nil || !errdefs.IsDataLoss(err) && !errdefs.IsInvalidArgument(err) && !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s at %d of %d: %v", what, at, len(whole), err)
		}
	}
	places := []int{0, len(whole) - 1, len(whole) - trailerBytes}
	for i := range 1024 { // the first headers
		places = append(places, i)
	}
	for i := range trailerBytes {
		places = append(places, len(whole)-1-i)
	}
	for range 500 {
		places = append(places, rand.IntN(len(whole)))
	}
	for _, at := range places {
		flipped := slices.Clone(whole)
		flipped[at] ^= 1 << rand.IntN(8)
		refused("flipped", at, flipped)
		refused("cut", at, whole[:at])
	}
	refused("longer", len(whole), append(slices.Clone(whole), 0))
	reopened(t, whole)
}

func TestInvalidBackupFilesAreClassified(t *testing.T) {
	whole := maker(t, records{database: []byte("db")}).made(t, false)
	newer := bytes.Replace(whole, []byte(`{"format":2`), []byte(`{"format":3`), 1)
	unsummed := slices.Clone(whole[:len(whole)-trailerBytes])
	for name, row := range map[string]struct {
		bytes []byte
		class func(error) bool
	}{
		"something else":     {[]byte(strings.Repeat("something else ", 20)), errdefs.IsInvalidArgument},
		"of a newer program": {newer, errdefs.IsFailedPrecondition},
		"empty":              {nil, errdefs.IsInvalidArgument},
		"of no release":      {[]byte("agbox backup\r\n\x1a\n\x00\x00\x00\x01" + strings.Repeat("x", 4000)), errdefs.IsInvalidArgument},
		"a header only":      {whole[:512], errdefs.IsDataLoss},
		"without its sum":    {unsummed, errdefs.IsDataLoss},
		"another archive":    {archiveOf(t, "other"), errdefs.IsInvalidArgument},
		"more than its name": {archiveOf(t, infoName+"x"), errdefs.IsInvalidArgument},
	} {
		if _, err := Open(t.Context(), bytes.NewReader(row.bytes), int64(len(row.bytes))); !row.class(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// archiveOf returns a tar archive of one file.
func archiveOf(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(put(w, tar.Header{Name: name}, nil), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestFilesThatNoBackupHas: such files are refused although the checksum is correct.
func TestFilesThatNoBackupHas(t *testing.T) {
	about, err := Header{Schema: 1, DatabaseBytes: 1, Instance: instance}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{
		{infoName}, {infoName, "logs/box/a"}, {infoName, databaseName, databaseName}, {infoName, databaseName, "../x"},
		{infoName, databaseName, "logs/box/a"}, // the header says that there are no logs
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i, name := range names {
			text := []byte("x")
			if i == 0 {
				text = about
			}
			if err := put(w, tar.Header{Name: name, Size: int64(len(text))}, bytes.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		}
		sum := sha256.New()
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		sum.Write(b.Bytes())
		b.Write(trailer(sum.Sum(nil)))
		if _, err := Open(t.Context(), bytes.NewReader(b.Bytes()), int64(b.Len())); !errdefs.IsDataLoss(err) {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// TestTarReadsIt: a backup is usable without agbox.
func TestTarReadsIt(t *testing.T) {
	m := maker(t, records{database: []byte("the database"), execs: []string{"a"}})
	m.put(t, "box/a.log", "log of a")
	dir := t.TempDir()
	cmd := exec.Command("tar", "-xf", "-", "-C", dir)
	cmd.Stdin = bytes.NewReader(m.made(t, true))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	db, err := os.ReadFile(filepath.Join(dir, "ids.db"))
	log, err2 := os.ReadFile(filepath.Join(dir, "logs/box/a.log"))
	if string(db) != "the database" || string(log) != "log of a" {
		t.Errorf("%q, %q, %v, %v", db, log, err, err2)
	}
}

// TestHostileLogs: files that a sandbox can create in its log directory.
func TestHostileLogs(t *testing.T) {
	m := maker(t, records{database: []byte("db"), execs: []string{"dir", "fifo", "huge", "link", "long", "ok"}})
	box := filepath.Join(m.LogRoot, "box")
	m.put(t, "secret", "not the sandbox's")
	m.put(t, "box/ok.log", "fine")
	m.put(t, "box/long.log", strings.Repeat("x", 100_000)) // longer than the present log limit, but with real content
	m.put(t, "box/huge.log", "")
	for _, err := range []error{
		os.Symlink("../secret", filepath.Join(box, "link.log")), syscall.Mkfifo(filepath.Join(box, "fifo.log"), 0o600),
		os.Mkdir(filepath.Join(box, "dir.log"), 0o700), os.Truncate(filepath.Join(box, "huge.log"), 1<<40),
		os.Symlink("box", filepath.Join(m.LogRoot, "other")), os.Mkdir(filepath.Join(m.LogRoot, ".hidden"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got := logsOf(t, reopened(t, m.made(t, true)))
	if len(got) != 3 || got["box/ok.log"] != "fine" || len(got["box/long.log"]) != 100_000 || len(got["box/huge.log"]) != 1000 {
		t.Errorf("got %d logs, huge of %d bytes, long of %d", len(got), len(got["box/huge.log"]), len(got["box/long.log"]))
	}
}

// TestALogThatShrinks: it is filled up, because an archive needs the size in its header.
func TestALogThatShrinks(t *testing.T) {
	var b bytes.Buffer
	h := Header{Schema: 1, Created: time.Now(), DatabaseBytes: 2, Instance: instance, WithLogs: true}
	err := Write(&b, h, strings.NewReader("db"), func(l *Logs) error {
		return l.Add(Log{Sandbox: "box", File: "a.log", Bytes: 5}, strings.NewReader("ab"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := logsOf(t, reopened(t, b.Bytes())); got["box/a.log"] != "ab\x00\x00\x00" {
		t.Errorf("got %q", got)
	}
}

func TestNamesThatLeadOutAreRefused(t *testing.T) {
	for _, name := range []string{"", "/etc/passwd", "../x", "box/..", "box/../../x", "box/.x", "./x", "a/b/c", "box/", "box", "box/a\n"} {
		if err := checkName(name); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
	for _, name := range []string{"box/a.log", "b_x-1/_main.stdout.log", strings.Repeat("i", 200) + "/" + strings.Repeat("e", 200) + ".journal"} {
		if err := checkName(name); err != nil {
			t.Error(err)
		}
	}
}

func TestTheEndOfTheContextEndsIt(t *testing.T) {
	m := maker(t, records{database: make([]byte, 1<<20)})
	whole := m.made(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Write(ctx, io.Discard, false); err == nil {
		t.Error("it was written")
	}
	if _, err := Open(ctx, bytes.NewReader(whole), int64(len(whole))); err == nil || errdefs.IsDataLoss(err) {
		t.Errorf("it was read: %v", err)
	}
}
