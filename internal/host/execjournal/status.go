package execjournal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execphase"
)

// Status is the state of an exec at the time of one call of Dir.Status.
type Status struct {
	Phase execphase.Phase
	// Journal is set for Running, Lost, Ended and Closed.
	Journal Journal
	// Problem is the reason, in one sentence, why Phase is Foreign.
	Problem string
}

// Status derives an exec's status from its files, without the engine and without waiting. A missing directory means
// NotStarted. An error means that the files could not be read now: no verdict.
func (d *Dir) Status(sandboxID, execID, nonce string) (Status, error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return Status{}, err
	}
	s := Status{Phase: execphase.NotStarted}
	err := inDir(d.Paths(sandboxID).Logs, func(fd int) (err error) {
		s, err = d.statusIn(fd, sandboxID, execID, nonce)
		return err
	})
	return s, err
}

// statusIn reads the journal, probes for life, and reads the journal again. The supervisor records the end before it exits, so
// the second read sees an end that came in between.
func (d *Dir) statusIn(dirfd int, sandboxID, execID, nonce string) (Status, error) {
	s, err := readStatus(dirfd, execID, nonce)
	if err != nil || s.Phase != execphase.Running {
		return s, err
	}
	lives, err := lockHeld(dirfd, execID)
	if err == nil && !lives {
		lives, err = d.livesUnseen(dirfd, sandboxID, s.Journal)
	}
	if err != nil || lives {
		return s, err
	}
	if s, err = readStatus(dirfd, execID, nonce); err == nil && s.Phase == execphase.Running {
		s.Phase = execphase.Lost
	}
	return s, err
}

// readStatus reads only the journal: a started one is Running.
func readStatus(dirfd int, execID, nonce string) (Status, error) {
	j, err := readJournal(dirfd, execID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Status{Phase: execphase.NotStarted}, nil
	case errors.Is(err, ErrMalformed):
		return Status{Phase: execphase.Foreign, Problem: err.Error()}, nil
	case err != nil:
		return Status{}, err
	case j == Journal{}:
		closed := Journal{Version: Version, ExecID: execID, Nonce: nonce, State: StateClosed}
		return Status{Phase: execphase.Closed, Journal: closed}, nil
	case j.Nonce != nonce:
		return Status{Phase: execphase.Foreign, Problem: "the journal has another nonce"}, nil
	}
	if TooOld(j) {
		j.Error = tooOld
	}
	phases := map[string]execphase.Phase{StateStarted: execphase.Running, StateEnded: execphase.Ended, StateClosed: execphase.Closed}
	return Status{Phase: phases[j.State], Journal: j}, nil
}

// readJournal reads the Journal of an exec; zero for an empty file, which the daemon creates to close an exec on a full disk. Errors: as for
// ReadFile and DecodeJournal.
func readJournal(dirfd int, execID string) (Journal, error) {
	data, err := ReadFile(dirfd, JournalName(execID), MaxJournalBytes)
	if err != nil || len(data) == 0 {
		return Journal{}, err
	}
	return DecodeJournal(data, execID)
}

// lockHeld probes the lock. A lock file that is missing or not regular is free: no shim can hold it.
func lockHeld(dirfd int, execID string) (bool, error) {
	f, err := openRegular(dirfd, LockName(execID))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrMalformed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // releases the shared lock
	err = Flock(int(f.Fd()), unix.LOCK_SH)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("probe %s: %w", LockName(execID), err)
	}
	return false, nil
}

// Close closes an exec without a journal so that it never runs, and then reads its status: Closed if the fence is the caller's
// (from now or an earlier call), otherwise the other creator's journal. reason is shown to users and holds no secret. When it
// returns Closed, the command has not run and never will, regardless of the container.
func (d *Dir) Close(sandboxID, execID, nonce, reason string) (Status, error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return Status{}, err
	}
	if !ValidNonce(nonce) {
		return Status{}, invalidf("nonce of exec %s is not valid", execID)
	}
	fd, err := d.openLogs(sandboxID)
	if err != nil {
		return Status{}, err
	}
	defer unix.Close(fd)
	data, err := Encode(Journal{
		Version: Version, ExecID: execID, Nonce: nonce, State: StateClosed,
		EndedAtNanos: time.Now().UnixNano(), Error: Sentence(reason),
	})
	if err != nil {
		return Status{}, err
	}
	err = CreateExclusive(fd, TempName(execID, "close"), JournalName(execID), data, true)
	if isFull(err) {
		err = closeWithoutSpace(fd, JournalName(execID))
	}
	if errors.Is(err, fs.ErrExist) {
		err = Sync(fd) // the link may be from before a crash of the daemon, and not yet durable
	}
	if err != nil {
		return Status{}, unavailablef("close exec %s: %w", execID, err)
	}
	return d.statusIn(fd, sandboxID, execID, nonce)
}

// openLogs opens the log directory, and creates it if no container ever had it.
func (d *Dir) openLogs(sandboxID string) (int, error) {
	logs := d.Paths(sandboxID).Logs
	fd, err := OpenDir(logs)
	if !errors.Is(err, fs.ErrNotExist) {
		return fd, err
	}
	if err := secureRoot(d.outputRoot); err != nil {
		return -1, err
	}
	if err := ensureDir(logs, 0o755, d.rootOf(filepath.Dir(d.Paths(sandboxID).Ctl))); err != nil {
		return -1, err
	}
	return OpenDir(logs)
}
