package execjournal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execid"
)

// Start asks the shim to run r; it sets Version. Idempotent, and without effect for an exec that has a journal. The shim
// acts on it at once, or when the container runs. Nothing is flushed: after a crash of the host the caller's record restores
// the file. Errors: invalid argument; not found before Prepare.
func (d *Dir) Start(sandboxID string, r Request) error {
	defer d.pollSoon(sandboxID)
	r.Version = r.version()
	if !ValidNonce(r.Nonce) {
		return invalidf("nonce of exec %s is not valid", r.ExecID)
	}
	if why := r.problem(); why != "" {
		return invalidf("request of exec %s: %s", r.ExecID, why)
	}
	data, err := Encode(r)
	if err != nil {
		return err
	}
	if len(data) > MaxRequestBytes {
		return invalidf("request of exec %s is larger than %d bytes", r.ExecID, MaxRequestBytes)
	}
	return d.put(sandboxID, r.ExecID, "json", RequestName(r.ExecID), data)
}

// Cancel asks the shim to stop an exec: TERM to its tree, KILL after the grace period of its Request. Idempotent. The shim
// never acts on a cancel of an exec without a journal: Close it as well.
func (d *Dir) Cancel(sandboxID, execID, nonce string) error {
	defer d.pollSoon(sandboxID)
	if !ValidNonce(nonce) {
		return invalidf("nonce of exec %s is not valid", execID)
	}
	data, err := Encode(Cancel{Version: Version, Nonce: nonce})
	if err != nil {
		return err
	}
	err = d.put(sandboxID, execID, "cancel", CancelName(execID), data)
	if isFull(err) {
		return d.cancelWithoutSpace(sandboxID, execID, nonce, err)
	}
	return err
}

// cancelled reports whether a Cancel with that nonce exists. Errors: I/O.
func (d *Dir) cancelled(sandboxID, execID, nonce string) (is bool, err error) {
	err = withDir(d.execDir(sandboxID), func(fd int) (err error) {
		is, err = Cancelled(fd, execID, nonce)
		return err
	})
	return is, err
}

// ReadRequest reads the Request of an exec. Errors: as for ReadFile and DecodeRequest.
func ReadRequest(dirfd int, execID string) (Request, error) {
	data, err := ReadFile(dirfd, RequestName(execID), MaxRequestBytes)
	if err != nil {
		return Request{}, err
	}
	return DecodeRequest(data, execID)
}

// Cancelled reports whether the directory has a Cancel with that nonce. What does not decode is none: Cancel replaces it. Errors: as for
// ReadFile.
func Cancelled(dirfd int, execID, nonce string) (bool, error) {
	data, err := ReadFile(dirfd, CancelName(execID), MaxRequestBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c, err := DecodeCancel(data)
	return err == nil && c.Nonce == nonce, nil
}

// Forget removes the request, the cancel and the inbox of a terminal exec, with the secrets in them. Idempotent.
func (d *Dir) Forget(sandboxID, execID string) error {
	if err := checkIDs(sandboxID, execID); err != nil {
		return err
	}
	return d.unlink(sandboxID, RequestName(execID), CancelName(execID), InboxName(execID), ClosedName(execID), HangupName(execID),
		TempName(execID, "json"), TempName(execID, "cancel"), TempName(execID, "closed"),
		TempName(execID, "hangup"))
}

// unlink removes files of ctl/exec; missing ones are ignored.
func (d *Dir) unlink(sandboxID string, names ...string) error {
	return inDir(d.execDir(sandboxID), func(fd int) error { return unlinkAll(fd, names...) })
}

// unlinkAll removes files of a directory; missing ones are ignored.
func unlinkAll(dirfd int, names ...string) error {
	for _, name := range names {
		if err := unix.Unlinkat(dirfd, name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

// put writes a file of ctl/exec unless it already has that content. Errors: invalid argument for the IDs; not found before Prepare;
// unavailable.
func (d *Dir) put(sandboxID, execID, what, name string, data []byte) error {
	if err := checkIDs(sandboxID, execID); err != nil {
		return err
	}
	return withDir(d.execDir(sandboxID), func(fd int) error {
		if old, err := ReadFile(fd, name, MaxRequestBytes); err == nil && bytes.Equal(old, data) {
			return nil
		}
		if err := Replace(fd, TempName(execID, what), name, data, 0o600, false); err != nil {
			return unavailablef("write %s of exec %s: %w", what, execID, err)
		}
		return nil
	})
}

// ExecDir returns the host path of the directory of requests, ctl/exec. It need not exist.
func (d *Dir) ExecDir(sandboxID string) string { return d.execDir(sandboxID) }

func (d *Dir) execDir(sandboxID string) string {
	return filepath.Join(d.Paths(sandboxID).Ctl, ExecDir)
}

// Release lets PID 1 start the main process and execs, in this run. Idempotent. Errors: invalid argument; not found
// before Prepare; unavailable.
func (d *Dir) Release(sandboxID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	return withDir(d.execDir(sandboxID), func(fd int) error {
		if there, err := Exists(fd, ReleaseName); err != nil || there {
			return err
		}
		temp := TempName(execid.Main, "release")
		discard(fd, temp)
		err := unix.Symlinkat(cmp.Or(d.Boot, unknownBoot), fd, temp)
		if err == nil {
			err = unix.Renameat(fd, temp, fd, ReleaseName)
		}
		if err != nil {
			return unavailablef("write the release: %w", err)
		}
		return nil
	})
}

// unknownBoot is the text of a release without a boot ID.
const unknownBoot = "-"

// ReleasedIn returns the host's boot ID that the release in the directory dirfd names; empty if it names none or there is none.
func ReleasedIn(dirfd int) string {
	text := make([]byte, 128)
	n, err := unix.Readlinkat(dirfd, ReleaseName, text)
	if err != nil || string(text[:n]) == unknownBoot {
		return ""
	}
	return string(text[:n])
}

// Released reports whether PID 1 was released in this run. Errors: invalid argument; unavailable.
func (d *Dir) Released(sandboxID string) (bool, error) {
	return marked(sandboxID, d.execDir(sandboxID), ReleaseName)
}

// marked reports whether a file of a sandbox exists. Errors: invalid argument; unavailable.
func marked(sandboxID, dir, name string) (bool, error) {
	at, err := markedAt(sandboxID, dir, name)
	return !at.IsZero(), err
}

// markedAt returns when a file of a sandbox was made; zero: there is none.
func markedAt(sandboxID, dir, name string) (time.Time, error) {
	if err := checkSandboxID(sandboxID); err != nil {
		return time.Time{}, err
	}
	st, err := os.Lstat(filepath.Join(dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, unavailablef("stat %s: %w", name, err)
	}
	return st.ModTime(), nil
}

// Begun reports whether a primary of the sandbox was started, or was about to be, since Prepare. Errors: invalid argument; unavailable.
func (d *Dir) Begun(sandboxID string) (bool, error) {
	return marked(sandboxID, d.execDir(sandboxID), BegunName)
}

// Withhold reverts Release, so that PID 1 of the next run waits for another one, clears Terminated and Started, and records that a primary
// is about to be started. Call it before each start. Idempotent. Errors: invalid argument; not found before Prepare; unavailable.
func (d *Dir) Withhold(sandboxID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	for _, name := range []string{TerminatedName, StartedName} {
		err := os.Remove(filepath.Join(d.Paths(sandboxID).Logs, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unavailablef("remove %s: %w", name, err)
		}
	}
	if err := d.forgetProof(sandboxID); err != nil {
		return err
	}
	if err := d.unlink(sandboxID, ReleaseName, PrivateName, NamelessName); err != nil {
		return err
	}
	return d.put(sandboxID, execid.Main, "begun", BegunName, nil)
}

// Terminated returns when PID 1 recorded the first TERM of its present or last run; zero: it recorded none. The sandbox's root can forge
// it. Errors: invalid argument; unavailable.
func (d *Dir) Terminated(sandboxID string) (time.Time, error) {
	return markedAt(sandboxID, d.Paths(sandboxID).Logs, TerminatedName)
}
