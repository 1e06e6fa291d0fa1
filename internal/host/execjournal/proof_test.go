package execjournal

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/execphase"
)

// startedBy is a process that the test kills.
func startedBy(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// TestLookWhereLocksAreNotSeen: an exec lives as long as the container's process, unless PID 1 created the .lost marker.
func TestLookWhereLocksAreNotSeen(t *testing.T) {
	d, p := newDir(t)
	cmd := startedBy(t)
	own, err := processOf(cmd.Process.Pid)
	must(t, err)
	l := privateRun{Version: Version, Run: "r1", Process: own}
	mark := func(l privateRun) {
		t.Helper()
		data, err := json.Marshal(l)
		must(t, err)
		write(t, p.Ctl, "exec/"+PrivateName, string(data))
	}
	want := func(when string, phase execphase.Phase) {
		t.Helper()
		s, err := d.Status("box1", "e1", testNonce)
		must(t, err)
		if s.Phase != phase {
			t.Errorf("%s: %s, want %s", when, s.Phase, phase)
		}
	}
	write(t, p.Logs, LockName("e1"), "")
	want("nothing", execphase.NotStarted)
	write(t, p.Logs, JournalName("e1"), strings.Replace(journal(StateStarted, testNonce), "{", `{"run":"r1",`, 1))
	want("the host sees locks", execphase.Lost)
	mark(l)
	want("the process lives", execphase.Running)
	if list, _, err := d.Traces("box1"); err != nil || len(list) != 1 || !list[0].Running {
		t.Errorf("traces: %+v, %v", list, err)
	}
	for what, other := range map[string]func(*privateRun){
		"another process of that ID": func(l *privateRun) { l.Process.Start += "1" },
		"another boot":               func(l *privateRun) { l.Process.BootID = "x" },
		"another run":                func(l *privateRun) { l.Run = "r2" },
		"no such process":            func(l *privateRun) { l.Process.Pid = 1 << 30 },
	} {
		dead := l
		other(&dead)
		mark(dead)
		want(what, execphase.Lost)
	}
	mark(l)
	write(t, p.Logs, LostName("e1"), "")
	want("the .lost marker exists", execphase.Lost)
	must(t, os.Remove(filepath.Join(p.Logs, LostName("e1"))))
	must(t, cmd.Process.Kill())
	var info unix.Siginfo
	must(t, unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)) // dead, and not yet reaped
	want("the process is a zombie", execphase.Lost)
	must(t, d.Withhold("box1"))
	if _, err := os.Lstat(filepath.Join(p.Ctl, "exec", PrivateName)); err == nil {
		t.Error("the next run inherits the file")
	}
	write(t, p.Ctl, "exec/"+PrivateName, "{")
	if s, err := d.Status("box1", "e1", testNonce); err == nil {
		t.Errorf("a damaged file gives a verdict: %s", s.Phase)
	}
	write(t, p.Logs, JournalName("e1"), journal(StateEnded, testNonce))
	want("ended", execphase.Ended)
}

// TestProveResumesFromTheFiles plays PID 1: every step of the proof is derived from the files, in any process.
func TestProveResumesFromTheFiles(t *testing.T) {
	_, p := newDir(t)
	again := func() *Dir { return New(filepath.Dir(p.Logs), filepath.Dir(filepath.Dir(p.Ctl))) }
	c := Container{ID: "no-such-container", Pid: startedBy(t).Process.Pid}
	kept := false
	c.HasFile = func(string) (bool, error) { return kept, nil }
	prove := func() Proof {
		t.Helper()
		proof, err := again().Prove("box1", c)
		must(t, err)
		return proof
	}
	wants := func(when string, proof, want Proof) {
		t.Helper()
		if proof != want {
			t.Errorf("%s: %+v, want %+v", when, proof, want)
		}
	}
	for range 2 {
		wants("asked", prove(), Proof{Awaited: "the host does not see that the probe command has started"})
	}
	data, err := os.ReadFile(filepath.Join(p.Ctl, "exec", RequestName(execid.Runtime)))
	must(t, err)
	r, err := DecodeRequest(data, execid.Runtime)
	must(t, err)
	write2 := func(j Journal) {
		t.Helper()
		j.Version, j.ExecID, j.Nonce = Version, execid.Runtime, r.Nonce
		data, err := Encode(j)
		must(t, err)
		write(t, p.Logs, JournalName(execid.Runtime), string(data))
	}
	write2(Journal{State: StateStarted})
	wants("mute", prove(), Proof{Awaited: "the host does not see the output of the probe command"})
	write(t, p.Logs, StdoutName(execid.Runtime), ProofNames+"\n"+r.Command[2]+"\n")
	if proof := prove(); !strings.Contains(proof.Refused, "a stop would lose them") {
		t.Errorf("the file is not kept: %+v", proof)
	}
	kept = true
	wants("unseen", prove(), Proof{Refused: "it keeps file locks inside the sandbox, and agboxd does not see the container's process, " +
		"so it cannot determine whether a command is alive"})
	lock, err := os.Create(filepath.Join(p.Logs, LockName(execid.Runtime)))
	must(t, err)
	defer lock.Close()
	must(t, Flock(int(lock.Fd()), unix.LOCK_EX))
	for range 2 {
		wants("held", prove(), Proof{Awaited: "the host does not see the end of the cancelled probe command"})
	}
	if _, err := os.Lstat(filepath.Join(p.Ctl, "exec", CancelName(execid.Runtime))); err != nil {
		t.Error(err)
	}
	kept = false // the command removes its file before its end is recorded
	wants("ending", prove(), Proof{Awaited: "the host does not see the end of the cancelled probe command"})
	write2(Journal{State: StateEnded, ExitCode: 9})
	wants("by itself", prove(), Proof{Refused: "the probe command exited with code 9 before it was cancelled"})
	write2(Journal{State: StateEnded, ErrorCode: ErrorStartFailed, Error: "no room"})
	wants("refused", prove(), Proof{Refused: "no room"})
	write2(Journal{State: StateEnded, Cancelled: true})
	wants("ended", prove(), Proof{Proven: true})
	for _, dir := range []string{p.Logs, filepath.Join(p.Ctl, "exec")} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("the proof leaves %v, %v", left, err)
		}
	}
}

// TestProveWaitsForNamesWhereTheyAreNeeded: the proof of a sandbox with services waits until its container reaches the engine's DNS server.
func TestProveWaitsForNamesWhereTheyAreNeeded(t *testing.T) {
	d, p := newDir(t)
	c := Container{ID: "c", Pid: startedBy(t).Process.Pid, NeedsNames: true, HasFile: func(string) (bool, error) { return true, nil }}
	prove := func() Proof {
		t.Helper()
		proof, err := d.Prove("box1", c)
		must(t, err)
		return proof
	}
	prove()
	data, err := os.ReadFile(filepath.Join(p.Ctl, "exec", RequestName(execid.Runtime)))
	must(t, err)
	r, err := DecodeRequest(data, execid.Runtime)
	must(t, err)
	lock, err := os.Create(filepath.Join(p.Logs, LockName(execid.Runtime)))
	must(t, err)
	defer lock.Close()
	must(t, Flock(int(lock.Fd()), unix.LOCK_EX))
	data, err = Encode(Journal{Version: Version, ExecID: execid.Runtime, Nonce: r.Nonce, State: StateStarted})
	must(t, err)
	write(t, p.Logs, JournalName(execid.Runtime), string(data))
	write(t, p.Logs, StdoutName(execid.Runtime), r.Command[2]+"\n")
	if proof := prove(); !strings.Contains(proof.Awaited, "DNS server") {
		t.Errorf("without names: %+v", proof)
	}
	if _, err := os.Lstat(filepath.Join(p.Ctl, "exec", CancelName(execid.Runtime))); err == nil {
		t.Error("the command was cancelled before it could reach the server")
	}
	write(t, p.Logs, StdoutName(execid.Runtime), r.Command[2]+"\n"+ProofNames+"\n")
	if proof := prove(); proof.Awaited != awaitsEnd || d.Nameless("box1") {
		t.Errorf("with names: %+v, nameless %t", proof, d.Nameless("box1"))
	}
	c.NeedsNames = false
	must(t, d.Forget("box1", execid.Runtime))
	write(t, p.Logs, StdoutName(execid.Runtime), r.Command[2]+"\n")
	if proof := prove(); proof.Awaited != awaitsEnd || !d.Nameless("box1") {
		t.Errorf("names are not needed: %+v, nameless %t", proof, d.Nameless("box1"))
	}
	must(t, d.Withhold("box1"))
	if d.Nameless("box1") {
		t.Error("the next run inherits the file")
	}
	c.HasFile = func(string) (bool, error) {
		write(t, p.Logs, StdoutName(execid.Runtime), r.Command[2]+"\n"+ProofNames+"\n")
		return true, nil
	}
	write(t, p.Logs, JournalName(execid.Runtime), string(data))
	write(t, p.Logs, LockName(execid.Runtime), "")
	relock, err := os.Open(filepath.Join(p.Logs, LockName(execid.Runtime)))
	must(t, err)
	defer relock.Close()
	must(t, Flock(int(relock.Fd()), unix.LOCK_EX))
	write(t, p.Logs, StdoutName(execid.Runtime), r.Command[2]+"\n")
	if proof := prove(); proof.Awaited != awaitsEnd || d.Nameless("box1") {
		t.Errorf("with names during HasFile: %+v, nameless %t", proof, d.Nameless("box1"))
	}
}
