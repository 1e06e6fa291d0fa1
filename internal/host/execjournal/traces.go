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
	t := traces{byID: map[string]*Trace{}}
	err = t.each(d.execDir(sandboxID), func(one *Trace, dirfd int, name string) error {
		if name == CancelName(one.ExecID) {
			one.Cancelled = true
			return nil
		}
		r, err := ReadRequest(dirfd, one.ExecID)
		if err == nil {
			one.Request = &r
		}
		return err
	}, requestSuffix, cancelSuffix)
	if err != nil {
		return nil, 0, err
	}
	err = t.each(d.Paths(sandboxID).Logs, func(one *Trace, dirfd int, _ string) error {
		j, err := readJournal(dirfd, one.ExecID)
		if err != nil || j == (Journal{}) { // empty: closed on a full disk, for which Status returns Closed
			return err
		}
		s, err := d.statusIn(dirfd, sandboxID, one.ExecID, j.Nonce)
		if err == nil && s.Phase != execphase.NotStarted && s.Phase != execphase.Foreign {
			one.Journal, one.Running = &s.Journal, s.Phase == execphase.Running
		}
		return err
	}, journalSuffix)
	if err != nil {
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
	byID   map[string]*Trace
	unread int
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

// each calls read with each file in the directory at path that has one of the suffixes, and the Trace of its exec; the main process is
// no exec. It counts malformed files; a file removed meanwhile is not an error.
func (t *traces) each(path string, read func(one *Trace, dirfd int, name string) error, suffixes ...string) error {
	return t.within(path, func(dirfd int, name string) error {
		id, ok := ownerOf(name, suffixes...)
		if !ok || id == execid.Main {
			return nil
		}
		if t.byID[id] == nil {
			if len(t.byID) >= maxTraces {
				t.unread++
				return nil
			}
			t.byID[id] = &Trace{ExecID: id}
		}
		err := read(t.byID[id], dirfd, name)
		switch {
		case errors.Is(err, ErrMalformed):
			t.unread++
			return nil
		case errors.Is(err, fs.ErrNotExist):
			return nil
		}
		return err
	})
}
