package execjournal

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ProofID is the internal exec that proves that a runtime can run commands. It takes the path of every exec, from its request to
// its log and its end, before PID 1 is released.
const ProofID = "_runtime"

// ProofVerb is the verb of the shim that the proof runs: it prints its argument and waits to be cancelled.
const ProofVerb = "probe"

// ProofNames is the line that the command of the proof prints once it reaches the engine's DNS server, or where there is none.
const ProofNames = "names"

// NamelessName is the file in ctl/exec that says that this run of the container did not reach the engine's DNS server when it was
// proven. The daemon writes it before the release and removes it before each start.
const NamelessName = "nameless"

// Container is a run of a container as the engine knows it.
type Container struct {
	ID  string
	Pid int // of its process on the host
	// HasFile asks the engine whether the container has a file.
	HasFile func(path string) (bool, error)
	// NeedsNames: a runtime whose containers don't reach the engine's DNS server is not proven.
	NeedsNames bool
}

// ProofFile is a file of the container that the command of the proof makes in its root file system, and removes at its end.
func ProofFile(word string) string { return path.Join(path.Dir(ContainerCtl), word) }

// Proof is how far the proof of a runtime is.
type Proof struct {
	// Proven: the runtime can run commands, and Look can tell whether they live.
	Proven bool
	// Awaited is what the host has not seen yet, where the proof goes on.
	Awaited string
	// Refused is the verdict that the runtime can't run commands.
	Refused string
}

// Prove takes the proof of the runtime of a running container one step further: the command of the proof is started, it is seen to have
// begun, to have printed and to have made a file that the engine sees, it is found out whether the host sees its lock, it is cancelled, and its end is read. Where the host does
// not see the lock, that is recorded under PrivateName, and where the command does not reach the engine's DNS server, under NamelessName. All state is in the files: call it again after each change of the journal of
// ProofID, also in another process. Withhold forgets it. Errors: invalid argument; I/O, which is no verdict.
func (d *Dir) Prove(sandboxID string, c Container) (Proof, error) {
	if err := checkSandboxID(sandboxID); err != nil {
		return Proof{}, err
	}
	proc, err := processOf(c.Pid)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !inContainer(c.Pid, c.ID) {
		proc = process{} // it matters only where the lock is not seen
	} else if err != nil {
		return Proof{}, err
	}
	logs, err := d.openLogs(sandboxID)
	if err != nil {
		return Proof{}, err
	}
	defer unix.Close(logs)
	nonce := fmt.Sprintf("runtime-proof-%d-%.64s", c.Pid, c.ID)
	s, err := readStatus(logs, ProofID, nonce)
	if err != nil {
		return Proof{}, err
	}
	switch s.Phase {
	case None:
		err := d.Start(sandboxID, Request{
			ExecID: ProofID, Nonce: nonce, Command: []string{ContainerShim, ProofVerb, nonce}, Cwd: "/", User: "0:0", CancelGraceMillis: 1000,
		})
		return Proof{Awaited: "the host does not see that a command has started"}, err
	case Running:
		return d.proveRunning(sandboxID, logs, s.Journal, proc, c)
	case Ended:
		return d.proveEnded(sandboxID, logs, nonce, s.Journal)
	}
	return Proof{Refused: "the journal that the host sees is not that of the command: " + cmp.Or(s.Problem, s.Phase.String())}, nil
}

const awaitsEnd = "the host does not see the end of a command that was cancelled"

// proveRunning checks the command while it runs, and then cancels it.
func (d *Dir) proveRunning(sandboxID string, logs int, j Journal, proc process, c Container) (Proof, error) {
	nonce := j.Nonce
	if printed, _, err := printed(logs, nonce); err != nil || !printed {
		return Proof{Awaited: "the host does not see what a command has printed"}, err
	}
	if lost, err := Exists(logs, LostName(ProofID)); err != nil || lost {
		return Proof{Refused: "the process that supervised a command was killed"}, err
	}
	// A command that was cancelled has passed the other checks. It removes its file some time before its end is on record.
	if cancelled, err := d.cancelled(sandboxID, ProofID, nonce); err != nil || cancelled {
		return Proof{Awaited: awaitsEnd}, err
	}
	if kept, err := c.HasFile(ProofFile(nonce)); err != nil || !kept {
		return Proof{Refused: "it keeps what commands write to the container's own files where the engine does not see it, so a stop would " +
			"lose it; gVisor's runsc must be given --overlay2=none among its arguments in the engine's configuration"}, err
	}
	if _, names, err := printed(logs, nonce); err != nil || !names {
		if err != nil || c.NeedsNames {
			return Proof{Awaited: "its network does not reach the engine's DNS server, which knows the names of services; gVisor's runsc must " +
				"be given --network=host among its arguments in the engine's configuration"}, err
		}
		if err := d.put(sandboxID, ProofID, "nameless", NamelessName, nil); err != nil {
			return Proof{}, err
		}
	}
	held, err := lockHeld(logs, ProofID)
	if err != nil {
		return Proof{}, err
	}
	if !held {
		// It may also have ended since its journal was read; it was not asked to.
		if s, err := readStatus(logs, ProofID, nonce); err != nil || s.Phase != Running {
			return Proof{Awaited: "the end of a command"}, err
		}
		if proc.Pid == 0 || j.Run == "" {
			return Proof{Refused: "it keeps file locks inside the sandbox, and agboxd does not see the container's process, " +
				"so it could not tell whether a command is alive"}, nil
		}
		data, err := json.Marshal(privateRun{Version: Version, Run: j.Run, Process: proc})
		if err == nil {
			err = d.put(sandboxID, ProofID, "private", PrivateName, data)
		}
		if err != nil {
			return Proof{}, err
		}
	}
	return Proof{Awaited: awaitsEnd}, d.Cancel(sandboxID, ProofID, nonce)
}

// proveEnded judges the end. The files of the proof are of no more use.
func (d *Dir) proveEnded(sandboxID string, logs int, nonce string, j Journal) (Proof, error) {
	printed, _, err := printed(logs, nonce)
	switch {
	case err != nil:
		return Proof{}, err
	case j.Error != "":
		return Proof{Refused: j.Error}, nil
	case !j.Cancelled:
		return Proof{Refused: fmt.Sprintf("a command that waits to be cancelled ended by itself, with code %d", j.ExitCode)}, nil
	case !printed:
		return Proof{Refused: "the host does not see what a command has printed"}, nil
	}
	return Proof{Proven: true}, d.forgetProof(sandboxID)
}

// printed reports whether the host sees the word that the command of the proof prints, and whether it also sees ProofNames.
func printed(logs int, word string) (printed, names bool, err error) {
	data, err := ReadFile(logs, StdoutName(ProofID), MaxJournalBytes)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrMalformed) {
		return false, false, nil
	}
	for line := range strings.Lines(string(data)) {
		printed = printed || line == word+"\n"
		names = names || line == ProofNames+"\n"
	}
	return printed, names, err
}

// Nameless reports whether the present or last run of a sandbox's container did not reach the engine's DNS server when it was proven.
func (d *Dir) Nameless(sandboxID string) bool {
	if checkSandboxID(sandboxID) != nil {
		return false
	}
	_, err := os.Lstat(filepath.Join(d.execDir(sandboxID), NamelessName))
	return err == nil
}

// forgetProof removes the files of a proof: the request first, since without a journal it would be run again, and then the journal,
// which is judged together with the rest.
func (d *Dir) forgetProof(sandboxID string) error {
	if err := d.Forget(sandboxID, ProofID); err != nil {
		return err
	}
	logs, err := openDir(d.Paths(sandboxID).Logs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(logs)
	names := []string{JournalName(ProofID), StdoutName(ProofID), StderrName(ProofID), LostName(ProofID), LockName(ProofID)}
	for _, name := range names {
		if err := unix.Unlinkat(logs, name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unavailablef("remove %s: %w", name, err)
		}
	}
	return nil
}
