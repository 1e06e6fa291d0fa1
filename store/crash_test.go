package store

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const pathEnv = "AGBOX_STORE_TEST_PATH"

func init() {
	children["crash"] = writeUntilKilled
}

// writeUntilKilled accepts and reports as fast as it can and prints each acknowledgement on a line.
func writeUntilKilled() int {
	s, err := Open(context.Background(), Options{
		Path: os.Getenv(pathEnv), InitialMmapSize: 64 << 20, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		EventHistoryLimit: 4,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	ack := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	<-s.LogReady()
	ack("open")
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				if err := oneLife(s, fmt.Sprintf("box-%d-%d-%d", os.Getpid(), w, i), ack); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
		})
	}
	wg.Wait()
	return 0
}

// oneLife takes a sandbox from its create to its delete request. The history limit drops events of its exec on the way.
func oneLife(s *Store, id string, ack func(string, ...any)) error {
	ctx := context.Background()
	if _, err := s.CreateSandbox(ctx, id, "name-"+id, spec(), nil); err != nil {
		return err
	}
	ack("sandbox %s 1", id)
	ready := []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_PREPARING, pending), phase(agboxv1.EventType_SANDBOX_READY, ready)}
	if err := s.Report(ctx, id, Report{Generation: 1, Events: ready, Progress: &storev1.Progress{HooksDone: 3}}); err != nil {
		return err
	}
	ack("sandbox %s 3", id)
	if _, err := s.CreateExec(ctx, execRequest(id, "exec-"+id), Caller{}); err != nil {
		return err
	}
	ack("exec exec-%s running", id)
	if err := s.EndExec(ctx, "exec-"+id, finished()); err != nil {
		return err
	}
	ack("exec exec-%s ended", id)
	if _, _, err := s.UpdateSpec(ctx, id, 0, setCPU(2)); err != nil {
		return err
	}
	ack("sandbox %s 6", id)
	if _, err := s.RequestDelete(ctx, id, "delete_requested"); err != nil {
		return err
	}
	ack("sandbox %s 7", id)
	return nil
}

// TestKilledInTheMiddleOfWrites kills a writing process and checks the file, several times on one file.
func TestKilledInTheMiddleOfWrites(t *testing.T) {
	o := testOptions(t)
	o.CheckProgram = childProgram(t, "check")
	var acked []string
	for round := 0; round < inShort(2, 5) || len(acked) < 100 && round < 100; round++ {
		acked = append(acked, killAWriter(t, o.Path)...)
		s := open(t, o)
		checkAcked(t, s, acked)
		checkWhole(t, s)
		must(t, s.Close())
	}
	if len(acked) < 100 {
		t.Fatalf("only %d acknowledged writes: the test shows nothing", len(acked))
	}
	t.Logf("%d acknowledged writes", len(acked))
}

// killAWriter returns the acknowledgements of a child that was killed at a random moment.
func killAWriter(t *testing.T, path string) (acked []string) {
	t.Helper()
	cmd, lines := startWriter(t, "crash", path)
	if !lines.Scan() || lines.Text() != "open" {
		_ = cmd.Process.Kill()
		t.Fatalf("child did not open the store: %v", cmd.Wait())
	}
	timer := time.AfterFunc(time.Duration(rand.IntN(300))*time.Millisecond, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	return ackedUntilKilled(t, cmd, lines)
}

// startWriter runs a child on the file at path, which prints a line for each acknowledged write.
func startWriter(t *testing.T, child, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	program := childProgram(t, child)
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Env = append(os.Environ(), pathEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	return cmd, bufio.NewScanner(out)
}

// ackedUntilKilled returns what a child printed before it was killed; it must not exit otherwise.
func ackedUntilKilled(t *testing.T, cmd *exec.Cmd, lines *bufio.Scanner) (acked []string) {
	t.Helper()
	for lines.Scan() {
		acked = append(acked, lines.Text())
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("child ended: %v", err)
	}
	// A kill can cut the last line, so it does not count as an acknowledgement.
	return acked[:max(len(acked)-1, 0)]
}

func checkAcked(t *testing.T, s *Store, acked []string) {
	t.Helper()
	for _, line := range acked {
		var kind, id, what string
		if _, err := fmt.Sscan(line, &kind, &id, &what); err != nil {
			t.Fatalf("acknowledgement %q: %v", line, err)
		}
		switch kind {
		case "sandbox":
			sb := get1(t, s, id)
			if fmt.Sprint(sb.LastSequence) < what {
				t.Fatalf("%s was acknowledged, but the newest event is %d", line, sb.LastSequence)
			}
		case "exec":
			e, err := s.Exec(ctx, id)
			if err != nil || what == "ended" && e.End == nil {
				t.Fatalf("%s was acknowledged, but: %+v, %v", line, e, err)
			}
		}
	}
}

// checkWhole checks that accepts, ends and sequences are complete.
func checkWhole(t *testing.T, s *Store) {
	t.Helper()
	if c := s.Corrupt(); len(c) > 0 {
		t.Fatalf("corrupt: %v", c)
	}
	for _, id := range s.LiveIDs() {
		sb := get1(t, s, id)
		events := allEvents(t, s, id)
		if uint64(len(events)) != sb.LastSequence-sb.history.dropped || sb.Spec.GetImage() == "" {
			t.Fatalf("%d events of %+v", len(events), sb)
		}
		if wantGone := map[uint64]uint64{6: 1, 7: 2}[sb.LastSequence]; sb.history.dropped != wantGone || sb.history.trimmed != 3*min(wantGone, 1)+wantGone {
			t.Fatalf("%d events, and gone are %+v", sb.LastSequence, sb.history)
		}
		if updated := sb.LastSequence >= 6; updated != (sb.Spec.GetCpuLimit() == 2) || updated != sb.Desired.GetLimitsPending() {
			t.Fatalf("half an update: %+v", sb)
		}
		if sb.Progress.GetHooksDone() == 3 != (sb.LastSequence >= 3) {
			t.Fatalf("half a report: %+v", sb)
		}
		holder, held := heldBy(s, "name-"+id)
		if held != (sb.State != deleting) || held && holder.ID != id {
			t.Fatalf("%s in state %v holds its name: %v", id, sb.State, held)
		}
		wantActive := sb.LastSequence == 4
		if slices.Contains(s.ActiveExecs(id), "exec-"+id) != wantActive {
			t.Fatalf("%s with %d events has active execs %v", id, sb.LastSequence, sb.ActiveExecs)
		}
	}
}
