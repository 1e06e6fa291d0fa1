package execjournal

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/execphase"
)

// ProofVerb is the shim's verb that execid.Runtime runs, the exec that proves that a runtime can run commands: it prints its argument and
// waits to be cancelled. It uses the path of every exec, from its request to its log and its end, before PID 1 is released.
const ProofVerb = "probe"

// ProofNames is the line that the proof's command prints once it reaches the engine's DNS server, or when there is none.
const ProofNames = "names"

// NamelessName is the file in ctl/exec that marks a run of the container that did not reach the engine's DNS server during the
// proof. The daemon writes it before the release and removes it before each start.
const NamelessName = "nameless"

// Container is one run of a container, as reported by the engine.
type Container struct {
	ID  string
	Pid int // of its PID 1 on the host
	// HasFile asks the engine whether the container has a file.
	HasFile func(path string) (bool, error)
	// NeedsNames: the proof fails if the container does not reach the engine's DNS server.
	NeedsNames bool
}

// ProofFile is a file in the container's root file system that the proof's command creates, and removes at its end.
func ProofFile(word string) string { return path.Join(path.Dir(ContainerCtl), word) }

// Proof is the progress of the proof of a runtime.
type Proof struct {
	// Proven: the runtime can run commands, and Status can determine whether they live.
	Proven bool
	// Awaited is what the host has not observed yet, while the proof continues.
	Awaited string
	// Refused is the reason why the runtime can't run commands.
	Refused string
}

// Prove advances the proof of a running container's runtime by one step: it starts the proof's command; waits until the host
// sees that it has started and printed, and the engine sees the file that it created; determines whether its lock is visible to
// the host; cancels it; and reads its end. When the lock is not visible, it records PrivateName; when the command does not reach
// the engine's DNS server, NamelessName. All state is in the files: call it again after each change of execid.Runtime's journal,
// also from another process. Withhold drops the proof. Errors: invalid argument; I/O, which is not a verdict.
func (d *Dir) Prove(sandboxID string, c Container) (Proof, error) {
	if err := checkSandboxID(sandboxID); err != nil {
		return Proof{}, err
	}
	proc, err := processOf(c.Pid)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !inContainer(c.Pid, c.ID) {
		proc = process{} // needed only when the lock is not visible
	} else if err != nil {
		return Proof{}, err
	}
	logs, err := d.openLogs(sandboxID)
	if err != nil {
		return Proof{}, err
	}
	defer unix.Close(logs)
	nonce := fmt.Sprintf("runtime-proof-%d-%.64s", c.Pid, c.ID)
	s, err := readStatus(logs, execid.Runtime, nonce)
	if err != nil {
		return Proof{}, err
	}
	switch s.Phase {
	case execphase.NotStarted:
		err := d.Start(sandboxID, Request{
			ExecID: execid.Runtime, Nonce: nonce, Command: []string{ContainerShim, ProofVerb, nonce}, Cwd: "/", User: "0:0", CancelGraceMillis: 1000,
		})
		return Proof{Awaited: "the host does not see that the probe command has started"}, err
	case execphase.Running:
		return d.proveRunning(sandboxID, logs, s.Journal, proc, c)
	case execphase.Ended:
		return d.proveEnded(sandboxID, logs, nonce, s.Journal)
	}
	return Proof{Refused: "the journal that the host sees is not that of the probe command: " + cmp.Or(s.Problem, s.Phase.String())}, nil
}

const awaitsEnd = "the host does not see the end of the cancelled probe command"

// proveRunning checks the command while it runs, and then cancels it.
func (d *Dir) proveRunning(sandboxID string, logs int, j Journal, proc process, c Container) (Proof, error) {
	nonce := j.Nonce
	if printed, _, err := printed(logs, nonce); err != nil || !printed {
		return Proof{Awaited: "the host does not see the output of the probe command"}, err
	}
	if lost, err := Exists(logs, LostName(execid.Runtime)); err != nil || lost {
		return Proof{Refused: "the supervisor of the probe command was killed"}, err
	}
	// A cancelled command has passed the other checks. It removes its file some time before its end is recorded.
	if cancelled, err := d.cancelled(sandboxID, execid.Runtime, nonce); err != nil || cancelled {
		return Proof{Awaited: awaitsEnd}, err
	}
	if kept, err := c.HasFile(ProofFile(nonce)); err != nil || !kept {
		return Proof{Refused: "writes to the container's own files are not visible to the engine, so a stop would " +
			"lose them; gVisor's runsc must be given --overlay2=none among its arguments in the engine's configuration"}, err
	}
	if _, names, err := printed(logs, nonce); err != nil || !names { // it may have printed them during HasFile
		if err != nil || c.NeedsNames {
			return Proof{Awaited: "its network does not reach the engine's DNS server, which resolves the names of services; gVisor's runsc must " +
				"be given --network=host among its arguments in the engine's configuration"}, err
		}
		if err := d.put(sandboxID, execid.Runtime, "nameless", NamelessName, nil); err != nil {
			return Proof{}, err
		}
	}
	held, err := lockHeld(logs, execid.Runtime)
	if err != nil {
		return Proof{}, err
	}
	if !held {
		// It may also have ended since its journal was read, although it was not cancelled.
		if s, err := readStatus(logs, execid.Runtime, nonce); err != nil || s.Phase != execphase.Running {
			return Proof{Awaited: "the host does not see the end of the probe command"}, err
		}
		if proc.Pid == 0 || j.Run == "" {
			return Proof{Refused: "it keeps file locks inside the sandbox, and agboxd does not see the container's process, " +
				"so it cannot determine whether a command is alive"}, nil
		}
		data, err := json.Marshal(privateRun{Version: Version, Run: j.Run, Process: proc})
		if err == nil {
			err = d.put(sandboxID, execid.Runtime, "private", PrivateName, data)
		}
		if err != nil {
			return Proof{}, err
		}
	}
	return Proof{Awaited: awaitsEnd}, d.Cancel(sandboxID, execid.Runtime, nonce)
}

// proveEnded checks the recorded end and removes the files of the proof.
func (d *Dir) proveEnded(sandboxID string, logs int, nonce string, j Journal) (Proof, error) {
	printed, _, err := printed(logs, nonce)
	switch {
	case err != nil:
		return Proof{}, err
	case j.Error != "":
		return Proof{Refused: j.Error}, nil
	case !j.Cancelled:
		return Proof{Refused: fmt.Sprintf("the probe command exited with code %d before it was cancelled", j.ExitCode)}, nil
	case !printed:
		return Proof{Refused: "the host does not see the output of the probe command"}, nil
	}
	return Proof{Proven: true}, d.forgetProof(sandboxID)
}

// printed reports whether the host sees the word that the command of the proof prints, and the line ProofNames.
func printed(logs int, word string) (printed, names bool, err error) {
	data, err := ReadFile(logs, StdoutName(execid.Runtime), MaxJournalBytes)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrMalformed) {
		return false, false, nil
	}
	for line := range strings.Lines(string(data)) {
		printed = printed || line == word+"\n"
		names = names || line == ProofNames+"\n"
	}
	return printed, names, err
}

// Nameless reports whether the present or last run of a sandbox's container failed to reach the engine's DNS server during the proof.
func (d *Dir) Nameless(sandboxID string) bool {
	nameless, _ := marked(sandboxID, d.execDir(sandboxID), NamelessName)
	return nameless
}

// forgetProof removes the files of a proof: the request first, since without a journal it would run again, then the journal,
// and the other files, which are only valid together with it.
func (d *Dir) forgetProof(sandboxID string) error {
	if err := d.Forget(sandboxID, execid.Runtime); err != nil {
		return err
	}
	const id = execid.Runtime
	return inDir(d.Paths(sandboxID).Logs, func(logs int) error {
		if err := unlinkAll(logs, JournalName(id), StdoutName(id), StderrName(id), LostName(id), LockName(id)); err != nil {
			return unavailablef("%w", err)
		}
		return nil
	})
}
