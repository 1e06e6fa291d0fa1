package recordfile_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/recordfile"
	"github.com/agbox/agbox/store"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// open opens a store with record files beside it, which are flushed until the test ends.
func open(t testing.TB, data string, mirror bool) (*store.Store, *recordfile.Dir) {
	t.Helper()
	o := store.Options{Path: filepath.Join(data, "ids.db"), Logger: quiet()}
	d := recordfile.New(filepath.Join(data, "s"), quiet(), func(err error) { t.Errorf("mirror: %v", err) })
	if mirror {
		o.Mirror = d
	}
	s, err := store.Open(t.Context(), o)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { d.Run(ctx) })
	t.Cleanup(func() {
		stop()
		wg.Wait()
		must(t, s.Close())
		d.Flush()
	})
	return s, d
}

func create(t testing.TB, s *store.Store, id string) {
	t.Helper()
	spec := &agboxv1.CreateSpec{Image: "busybox", Labels: map[string]string{"team": "a"}, Envs: map[string]string{"K": "v"}}
	_, err := s.CreateSandbox(context.Background(), id, "", spec, nil)
	must(t, err)
}

func report(t testing.TB, s *store.Store, id string, typ agboxv1.EventType, state agboxv1.SandboxState) {
	t.Helper()
	sb, err := s.Sandbox(context.Background(), id)
	must(t, err)
	must(t, s.Report(context.Background(), id, store.Report{
		Generation: sb.Desired.GetGeneration(), Events: []*agboxv1.SandboxEvent{{EventType: typ, SandboxState: state}},
	}))
}

func ready(t testing.TB, s *store.Store, id string) {
	t.Helper()
	report(t, s, id, agboxv1.EventType_SANDBOX_READY, agboxv1.SandboxState_SANDBOX_STATE_READY)
}

func runExec(t testing.TB, s *store.Store, id, execID string) {
	t.Helper()
	req := &agboxv1.CreateExecRequest{SandboxId: id, ExecId: execID, Command: []string{"true"}}
	_, err := s.CreateExec(context.Background(), req)
	must(t, err)
	must(t, s.EndExec(context.Background(), execID, &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FINISHED)}))
}

func TestTheFilesHoldWhatTheStoreKnows(t *testing.T) {
	data := t.TempDir()
	s, _ := open(t, data, true)
	var wg sync.WaitGroup
	const boxes, execs = 20, 10
	for i := range boxes {
		wg.Go(func() {
			id := fmt.Sprintf("box-%d", i)
			create(t, s, id)
			ready(t, s, id)
			for n := range execs {
				runExec(t, s, id, fmt.Sprintf("%s-exec-%d", id, n))
			}
		})
	}
	wg.Wait()
	compare(t, s, data, boxes, execs)
	must(t, os.RemoveAll(filepath.Join(data, "s")))
	must(t, s.MirrorAll(t.Context()))
	compare(t, s, data, boxes, execs)
}

func compare(t *testing.T, s *store.Store, data string, boxes, execs int) {
	t.Helper()
	found, problems, err := recordfile.ReadAll(filepath.Join(data, "s"))
	must(t, err)
	if len(found) != boxes || len(problems) != 0 {
		t.Fatalf("%d found, problems %v", len(found), problems)
	}
	for _, f := range found {
		r := f.Record
		sb, err := s.Sandbox(t.Context(), r.GetSandboxId())
		must(t, err)
		same := proto.Equal(r.GetSpec(), sb.Spec) && proto.Equal(r.GetDesired(), sb.Desired) && proto.Equal(r.GetProgress(), sb.Progress) &&
			r.GetState() == int32(sb.State) && r.GetLastSequence() == sb.LastSequence && r.GetIdleSince() == sb.IdleSince.UnixNano()
		if !same || r.GetInstance() != s.InstanceID() || len(f.Execs) != execs {
			t.Errorf("found %v with %d execs, want %v", r, len(f.Execs), sb)
		}
		for _, e := range f.Execs {
			want, err := s.Exec(t.Context(), e.GetExecId())
			must(t, err)
			if !proto.Equal(e.GetEnd(), want.End) || !proto.Equal(e.GetDesired(), want.Desired) || !proto.Equal(e.GetRequest(), want.Request) {
				t.Errorf("found %v, want %v", e, want)
			}
		}
	}
}

// The order of a delete: the files are removed, then DELETED is recorded. Neither it nor the purge leaves anything.
func TestADeleteLeavesNothing(t *testing.T) {
	data := t.TempDir()
	s, d := open(t, data, true)
	journals := execjournal.New(filepath.Join(data, "logs"), filepath.Join(data, "s"))
	ctx := t.Context()
	create(t, s, "box")
	ready(t, s, "box")
	runExec(t, s, "box", "exec")
	_, err := journals.Prepare("box")
	must(t, err)
	_, err = s.RequestDelete(ctx, "box", "")
	must(t, err)
	must(t, journals.Remove("box"))
	report(t, s, "box", agboxv1.EventType_SANDBOX_SERVICE_FAILED, agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED)
	report(t, s, "box", agboxv1.EventType_SANDBOX_DELETED, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
	must(t, s.PurgeSandbox(ctx, "box"))
	must(t, s.MirrorAll(ctx))
	d.Flush()
	if entries, err := os.ReadDir(filepath.Join(data, "s")); err != nil || len(entries) != 0 {
		t.Errorf("left are %v, %v", entries, err)
	}
}

// What the mirror adds to one create alone, and to 1000 at once: ns/op is the time until all have their answer.
func BenchmarkCreate(b *testing.B) {
	for _, mirror := range []bool{false, true} {
		b.Run(fmt.Sprintf("alone/mirror=%v", mirror), func(b *testing.B) {
			s, _ := open(b, b.TempDir(), mirror)
			for i := 0; b.Loop(); i++ {
				create(b, s, fmt.Sprintf("box-%d", i))
			}
		})
		b.Run(fmt.Sprintf("together/mirror=%v", mirror), func(b *testing.B) {
			s, _ := open(b, b.TempDir(), mirror)
			for round := 0; b.Loop(); round++ {
				var wg sync.WaitGroup
				for i := range 1000 {
					wg.Go(func() { create(b, s, fmt.Sprintf("box-%d-%d", round, i)) })
				}
				wg.Wait()
			}
		})
	}
}

// BenchmarkExec is a record and an end of one exec after another.
func BenchmarkExec(b *testing.B) {
	for _, mirror := range []bool{false, true} {
		b.Run(fmt.Sprintf("mirror=%v", mirror), func(b *testing.B) {
			s, _ := open(b, b.TempDir(), mirror)
			create(b, s, "box")
			ready(b, s, "box")
			for i := 0; b.Loop(); i++ {
				runExec(b, s, "box", fmt.Sprintf("exec-%d", i))
			}
		})
	}
}

// BenchmarkSandbox is one change of a sandbox that is there, without the store.
func BenchmarkSandbox(b *testing.B) {
	d := recordfile.New(filepath.Join(b.TempDir(), "s"), quiet(), nil)
	r := &storev1.SandboxRecord{Version: 1, SandboxId: "box", Spec: &agboxv1.CreateSpec{Image: "busybox"}, Desired: &storev1.Desired{}}
	for i := 0; b.Loop(); i++ {
		r.LastSequence = uint64(i)
		d.Sandbox(r)
	}
}
