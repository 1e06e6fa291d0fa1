package execjournal

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// ProofID names the lock that PID 1 holds from before its release until its end, where it was asked to prove its runtime. No exec has
// such an ID.
const ProofID = "_runtime"

// Proof is what the host sees of the lock of a PID 1.
type Proof int

// What the host may see.
const (
	ProofMissing Proof = iota // PID 1 has not come so far, or has ended before
	ProofHeld                 // the host sees locks of the container
	ProofFree                 // the lock was taken, and the host does not see that, or PID 1 has ended since
)

// Proven looks at the lock of PID 1 in this run of the container. Errors: invalid argument; I/O.
func (d *Dir) Proven(sandboxID string) (Proof, error) {
	if err := checkSandboxID(sandboxID); err != nil {
		return ProofMissing, err
	}
	logs, err := openDir(d.Paths(sandboxID).Logs)
	if errors.Is(err, fs.ErrNotExist) {
		return ProofMissing, nil
	}
	if err != nil {
		return ProofMissing, err
	}
	defer unix.Close(logs)
	var st unix.Stat_t
	err = unix.Fstatat(logs, LockName(ProofID), &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return ProofMissing, nil
	}
	if err != nil {
		return ProofMissing, err
	}
	held, err := lockHeld(logs, ProofID)
	if err != nil {
		return ProofMissing, err
	}
	if held {
		return ProofHeld, nil
	}
	return ProofFree, nil
}

// forgetProof removes the lock file of an earlier run. The container must not run.
func (d *Dir) forgetProof(sandboxID string) error {
	logs, err := openDir(d.Paths(sandboxID).Logs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(logs)
	if err := unix.Unlinkat(logs, LockName(ProofID), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unavailablef("remove %s: %w", LockName(ProofID), err)
	}
	return nil
}
