package execjournal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/execphase"
)

// Bounds of Traces per directory: a container can fill its own directory with names.
const (
	maxTraces  = 20_000
	maxEntries = 1 << 20
)

// Trace is the information that the files hold about one exec, for a caller without a record of it.
type Trace struct {
	ExecID string
	// Request is the daemon's own, which no container can write; nil once the exec is recorded as ended, and for an exec that
	// was never requested.
	Request *Request
	// Cancelled: a Cancel exists.
	Cancelled bool
	// Journal is the container's; nil when there is none. A nonce other than the request's means that it is forged.
	Journal *Journal
	// Running: the journal says started, and the exec lives.
	Running bool
}

// Traces lists the execs, internal ones too, that have a request or a journal, sorted by ID. unread counts the journals and
// requests that could not be read, or exceed the bounds. Missing directories count as empty. Errors: invalid argument;
// else the I/O error.
func (d *Dir) Traces(sandboxID string) (list []Trace, unread int, err error) {
	if err := checkSandboxID(sandboxID); err != nil {
		return nil, 0, err
	}
	t := traces{dir: d, sandboxID: sandboxID, byID: map[string]*Trace{}}
	if err := t.within(d.execDir(sandboxID), t.input); err != nil {
		return nil, 0, err
	}
	if err := t.within(d.Paths(sandboxID).Logs, t.output); err != nil {
		return nil, 0, err
	}
	for _, id := range slices.Sorted(maps.Keys(t.byID)) {
		if one := t.byID[id]; one.Request != nil || one.Journal != nil {
			list = append(list, *one)
		}
	}
	return list, t.unread, nil
}

type traces struct {
	dir       *Dir
	sandboxID string
	byID      map[string]*Trace
	unread    int
}

// within calls visit with each name in the directory at path.
func (t *traces) within(path string, visit func(dirfd int, name string) error) error {
	return inDir(path, func(fd int) error {
		seen := 0
		for name, err := range entries(fd) {
			if err != nil {
				return fmt.Errorf("list %s: %w", path, err)
			}
			if seen++; seen > maxEntries {
				t.unread++
				return nil
			}
			if err := visit(fd, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// trace returns the Trace of an exec; nil when there are too many.
func (t *traces) trace(id string) *Trace {
	if t.byID[id] == nil {
		if len(t.byID) >= maxTraces {
			t.unread++
			return nil
		}
		t.byID[id] = &Trace{ExecID: id}
	}
	return t.byID[id]
}

// input reads a file of ctl/exec.
func (t *traces) input(dirfd int, name string) error {
	id, cancel, ok := RequestID(name)
	if !ok {
		return nil
	}
	one := t.trace(id)
	if one == nil || cancel {
		if one != nil {
			one.Cancelled = true
		}
		return nil
	}
	r, err := ReadRequest(dirfd, id)
	if err == nil {
		one.Request = &r
	}
	return t.record(err)
}

// output reads a file of the log directory.
func (t *traces) output(dirfd int, name string) error {
	id, ok := ownerOf(name, journalSuffix)
	if !ok || id == execid.Main {
		return nil
	}
	one := t.trace(id)
	if one == nil {
		return nil
	}
	j, err := readJournal(dirfd, id)
	if err != nil || j == (Journal{}) { // of an exec closed on a full disk, for which Status returns Closed
		return t.record(err)
	}
	s, err := t.dir.statusIn(dirfd, t.sandboxID, id, j.Nonce)
	if err == nil && s.Phase != execphase.NotStarted && s.Phase != execphase.Foreign {
		one.Journal, one.Running = &s.Journal, s.Phase == execphase.Running
	}
	return t.record(err)
}

// record counts malformed files; a file removed meanwhile is not an error.
func (t *traces) record(err error) error {
	switch {
	case errors.Is(err, ErrMalformed):
		t.unread++
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}
