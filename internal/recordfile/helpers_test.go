package recordfile

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// newDir is one that must not fail.
func newDir(t testing.TB) (*Dir, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "s")
	return New(root, quiet(), func(err error) { t.Errorf("mirror: %v", err) }), root
}

func record(id string, sequence uint64) *storev1.SandboxRecord {
	return &storev1.SandboxRecord{
		Version: 1, SandboxId: id, Instance: "instance", Spec: &agboxv1.CreateSpec{Image: "busybox", Envs: map[string]string{"K": "v"}},
		Desired:      &storev1.Desired{RunState: storev1.RunState_RUN_STATE_RUN, Generation: 1, Name: "name"},
		LastSequence: sequence,
	}
}

func leaving(id string) *storev1.SandboxRecord {
	r := record(id, 9)
	r.Desired.RunState = storev1.RunState_RUN_STATE_DELETE
	return r
}

func execRecord(id, execID string) *storev1.ExecRecord {
	return &storev1.ExecRecord{
		ExecId: execID, Request: &agboxv1.CreateExecRequest{SandboxId: id, ExecId: execID, Command: []string{"true"}},
		Desired: &storev1.ExecDesired{Nonce: "00112233445566778899aabbccddeeff", CreatedAt: 1},
	}
}

func ended(r *storev1.ExecRecord) *storev1.ExecRecord {
	r = proto.CloneOf(r)
	r.End = &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FINISHED), ExitCode: 3}
	return r
}

// place is where the file name of a sandbox is.
func fileOf(root, id, name string) string {
	return filepath.Join(root, execjournal.RunName(id), name)
}

// read returns what is readable, by ID, and the problems.
func read(t testing.TB, root string) (map[string]Found, []Problem) {
	t.Helper()
	list, problems, err := ReadAll(root)
	must(t, err)
	found := map[string]Found{}
	for _, f := range list {
		found[f.Record.GetSandboxId()] = f
	}
	return found, problems
}

// wantOnly fails unless root holds exactly this sandbox with these execs, and no problem.
func wantOnly(t testing.TB, root string, r *storev1.SandboxRecord, execs ...*storev1.ExecRecord) {
	t.Helper()
	found, problems := read(t, root)
	f := found[r.GetSandboxId()]
	if len(problems) != 0 || len(found) != 1 || f.Torn || f.TornExecs || !proto.Equal(f.Record, r) {
		t.Fatalf("%d found, one is %v, torn %v; problems %v", len(found), f.Record, f.Torn, problems)
	}
	wantExecs(t, f, execs...)
}

func wantExecs(t testing.TB, f Found, execs ...*storev1.ExecRecord) {
	t.Helper()
	byID := func(a, b *storev1.ExecRecord) int { return cmp.Compare(a.GetExecId(), b.GetExecId()) }
	have := slices.SortedFunc(slices.Values(f.Execs), byID)
	want := slices.SortedFunc(slices.Values(execs), byID)
	if len(have) != len(want) {
		t.Fatalf("%d execs, want %d", len(have), len(want))
	}
	for i := range have {
		if !proto.Equal(have[i], want[i]) {
			t.Fatalf("exec is %v, want %v", have[i], want[i])
		}
	}
}

func sizeOf(t testing.TB, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	must(t, err)
	return st.Size()
}

func boxID(i int) string { return fmt.Sprintf("box-%05d", i) }

func execID(i int) string { return fmt.Sprintf("exec-%05d", i) }

func newLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func must2(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func put(b []byte) func(string) error {
	return func(path string) error { return os.WriteFile(path, b, 0o600) }
}

func mkfifo(path string) error { return unix.Mkfifo(path, 0o600) }
