package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/audit/stream"
)

// files is the content of the state directory.
type files struct {
	logs    map[string]*logDir // by sandbox ID
	runs    map[string]*runDir // by the name of the directory
	log     replayed           // of the database
	streams int                // verified
}

// logDir is the log directory of one sandbox.
type logDir struct {
	journals map[string]journalFile
	// locks, logs and inboxes by exec ID.
	locks map[string]bool
	sizes map[string]int64 // by file name
	// streams are the logs that start with the header of a stream, by file name.
	streams map[string]stream.Result
	// marked are the logs that contain the marker of dropped output at their end, by file name.
	marked map[string]bool
}

// journalFile is one journal, or the reason why it is not valid.
type journalFile struct {
	journal
	problem string
	empty   bool // the daemon closed the exec on a full disk, without room for a nonce
	held    bool // the lock is held, also invisibly to the host; probed only for the state "started"
}

// of reports whether the journal is of an exec with this nonce.
func (j journalFile) of(nonce string) bool {
	return j.problem == "" && (j.empty || j.Nonce == nonce)
}

// journal is the JSON that agbox-shim writes, with the fields that the auditor checks.
type journal struct {
	Version   int    `json:"version"`
	ExecID    string `json:"exec_id"`
	Nonce     string `json:"nonce"`
	State     string `json:"state"`
	Run       string `json:"run"`
	StartedAt int64  `json:"started_at_ns"`
	EndedAt   int64  `json:"ended_at_ns"`
	ExitCode  int    `json:"exit_code"`
	Cancelled bool   `json:"cancelled"`
	Stopped   bool   `json:"stopped"`
	LogLimit  bool   `json:"log_limit"`
	LogLost   bool   `json:"log_lost"`
	Timeout   int64  `json:"timeout_ms"`
	ErrorCode string `json:"error_code"`

	StdoutBytes   int64 `json:"stdout_bytes"`
	StderrBytes   int64 `json:"stderr_bytes"`
	StdoutDropped int64 `json:"stdout_dropped_bytes"`
	StderrDropped int64 `json:"stderr_dropped_bytes"`
}

// Bounds on the size of files that a sandbox can write.
const (
	maxJournalBytes = 64 << 10
	maxStreamBytes  = 1 << 30
	markerText      = "\n[agbox: output limit of "
	markerTail      = 256
)

const (
	suffixJournal = ".journal"
	suffixLock    = ".lock"
	suffixLost    = ".lost" // marker of PID 1: the exec died without a recorded end
	suffixStdout  = ".stdout.log"
	suffixStderr  = ".stderr.log"
)

// readFiles reads the directories below the roots. A missing root counts as empty.
func readFiles(site Site) (f files, err error) {
	if f.logs, err = eachDir(site.LogRoot, readLogDir); err != nil {
		return f, err
	}
	for _, d := range f.logs {
		f.streams += len(d.streams)
	}
	f.runs, err = eachDir(site.RunRoot, readRunDir)
	return f, err
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// eachDir reads the directories below root, by name. It leaves out those that a delete removes meanwhile.
func eachDir[D any](root string, read func(path string) (*D, error)) (map[string]*D, error) {
	all := map[string]*D{}
	entries, err := os.ReadDir(root)
	if err != nil && !gone(err) {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		d, err := read(filepath.Join(root, e.Name()))
		switch {
		case err == nil:
			all[e.Name()] = d
		case !gone(err):
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return all, nil
}

// readLogDir reads a directory that the sandbox can write to: it opens only regular files, follows no link, and reads up to bounds.
func readLogDir(path string) (*logDir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // opened read-only
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	d := &logDir{
		journals: map[string]journalFile{}, locks: map[string]bool{}, sizes: map[string]int64{},
		streams: map[string]stream.Result{}, marked: map[string]bool{},
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := d.add(root, e.Name()); err != nil && !gone(err) {
			return nil, err
		}
	}
	return d, nil
}

func (d *logDir) add(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	d.sizes[name] = info.Size()
	if id, ok := strings.CutSuffix(name, suffixJournal); ok {
		d.journals[id], err = readJournal(root, id)
		return err
	}
	if id, ok := strings.CutSuffix(name, suffixLock); ok {
		d.locks[id] = true
		return nil
	}
	if !strings.HasSuffix(name, ".log") {
		return nil
	}
	return d.readLog(root, name, info.Size())
}

// readLog verifies a log that starts as a stream, and searches for the marker of dropped output.
func (d *logDir) readLog(root *os.Root, name string, size int64) error {
	f, err := openRegular(root, name)
	if err != nil {
		return err
	}
	defer f.Close()
	tail := make([]byte, min(size, markerTail))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	d.marked[name] = strings.Contains(string(tail), markerText)
	res, err := stream.Verify(io.LimitReader(f, maxStreamBytes))
	if errors.Is(err, stream.ErrNoStream) {
		return nil
	}
	d.streams[name] = res
	return err
}

// openRegular opens a regular file without blocking on a FIFO. The caller has skipped devices by their type.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// readJournal reads the journal, probes the lock, and reads the journal again: the supervisor records the end before it releases the lock.
func readJournal(root *os.Root, id string) (journalFile, error) {
	j, err := decodeJournal(root, id)
	if err != nil || j.problem != "" || j.State != "started" {
		return j, err
	}
	held, err := lockHeld(root, id)
	if err != nil || held {
		j.held = held
		return j, err
	}
	return decodeJournal(root, id)
}

// readRegular reads a regular file, up to one byte more than maxJournalBytes. It returns what is in a file that had the name before and after: a
// supervisor overwrites a file that was a journal before.
func readRegular(root *os.Root, name string) ([]byte, error) {
	for range 10 {
		f, err := openRegular(root, name)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(io.LimitReader(f, maxJournalBytes+1))
		is, statErr := f.Stat()
		f.Close()
		named, nameErr := root.Lstat(name)
		if errors.Is(nameErr, fs.ErrNotExist) || nameErr == nil && statErr == nil && !os.SameFile(is, named) {
			continue
		}
		return data, errors.Join(err, statErr, nameErr)
	}
	return nil, fmt.Errorf("%s is another file each time that it is read", name)
}

func decodeJournal(root *os.Root, id string) (journalFile, error) {
	data, err := readRegular(root, id+suffixJournal)
	if err != nil {
		return journalFile{}, err
	}
	if len(data) == 0 {
		return journalFile{journal: journal{ExecID: id, State: "closed"}, empty: true}, nil
	}
	var j journalFile
	switch err := json.Unmarshal(data, &j.journal); {
	case len(data) > maxJournalBytes:
		j.problem = "the journal is too large"
	case err != nil:
		j.problem = "the journal is not JSON: " + err.Error()
	case j.ExecID != id:
		j.problem = fmt.Sprintf("the journal is of exec %q", j.ExecID)
	case j.State != "started" && j.State != "ended" && j.State != "closed":
		j.problem = fmt.Sprintf("the journal has state %q", j.State)
	}
	return j, nil
}

// lockHeld takes the lock, shared, for an instant. It is only called when a journal exists, so it cannot disturb the start of the exec.
func lockHeld(root *os.Root, id string) (bool, error) {
	f, err := openRegular(root, id+suffixLock)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
