package recordfile

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// Found is what the files of one sandbox hold.
type Found struct {
	// Record has a valid ID, a spec and a desired state.
	Record *storev1.SandboxRecord
	// Execs have valid IDs, a request to this sandbox and a nonce; of each ID the newest, in the order of the first.
	Execs []*storev1.ExecRecord
	// Torn: the newest change may be missing. TornExecs: that of an exec may be. A Problem tells of it, too.
	Torn, TornExecs bool
}

// Problem is something that could not be read. Err is ErrDataLoss for what is torn, damaged or in the wrong place,
// ErrFailedPrecondition for what a later release has written, ErrUnavailable for an I/O error. The file stays as it is.
type Problem struct {
	Path string
	Err  error
}

// isRunName tells the directories of sandboxes from others.
var isRunName = regexp.MustCompile(`^[0-9a-f]{16}$`)

// ReadAll reads the files of all sandboxes below runRoot, in the order of the directories. One that can't be read is a
// problem and stops nothing. A directory without files has none, and so has a root that is missing. Nobody may write
// meanwhile. Errors: the root can't be listed.
func ReadAll(runRoot string) ([]Found, []Problem, error) {
	entries, err := os.ReadDir(runRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list the records: %w: %w", err, errdefs.ErrUnavailable)
	}
	var r reader
	var found []Found
	for _, e := range entries {
		if !isRunName.MatchString(e.Name()) {
			continue
		}
		if f, ok := r.sandbox(filepath.Join(runRoot, e.Name())); ok {
			found = append(found, f)
		}
	}
	return found, r.problems, nil
}

// reader collects the problems.
type reader struct{ problems []Problem }

func (r *reader) problem(path string, err error) {
	if !errdefs.IsDataLoss(err) && !errdefs.IsFailedPrecondition(err) {
		err = fmt.Errorf("%w: %w", err, errdefs.ErrUnavailable)
	}
	r.problems = append(r.problems, Problem{path, err})
}

func (r *reader) sandbox(path string) (f Found, ok bool) {
	dirfd, err := openDir(path)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		err = fmt.Errorf("it is no directory: %w", errdefs.ErrDataLoss)
	}
	if err != nil {
		r.problem(path, err)
		return f, false
	}
	defer unix.Close(dirfd)
	if ok = r.record(dirfd, path, &f); ok {
		r.execs(dirfd, path, &f)
	}
	return f, ok
}

// frames calls fn with each frame of a file. It reports whether the file is there and whole.
func (r *reader) frames(dirfd int, path string, k kind, fn func(frame) error) (exists, whole bool) {
	f, size, err := openFile(dirfd, filepath.Base(path), unix.O_RDONLY)
	if isGone(err) {
		return false, true
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		err = fmt.Errorf("it is no regular file: %w", errdefs.ErrDataLoss)
	}
	if err == nil {
		defer f.Close()
		err = scanMarked(f, size, k, fn)
	}
	if err != nil {
		r.problem(path, err)
	}
	return true, err == nil
}

func scanMarked(f *os.File, size int64, k kind, fn func(frame) error) error {
	frames, whole, err := marked(f, size)
	if err != nil {
		return err
	}
	_, err = scan(bufio.NewReaderSize(section(f, 0, frames), scanBuffer), frames, k, func(_ int64, fr frame) error { return fn(fr) })
	if err == nil && !whole {
		err = errNoEnd
	}
	return err
}

// record takes the last frame.
func (r *reader) record(dirfd int, dir string, f *Found) (ok bool) {
	path := filepath.Join(dir, execjournal.RecordName)
	var last frame
	exists, whole := r.frames(dirfd, path, kindSandbox, func(fr frame) error { last = fr; return nil })
	f.Torn = !whole
	switch {
	case !exists:
		if there, err := execjournal.Exists(dirfd, execjournal.ExecsName); there || err != nil {
			r.problem(path, errors.Join(fmt.Errorf("there are execs and no sandbox: %w", errdefs.ErrDataLoss), err))
		}
		return false
	case last.version == 0: // none
		if whole {
			r.problem(path, fmt.Errorf("it is empty: %w", errdefs.ErrDataLoss))
		}
		return false
	}
	rec, err := decodeRecord(last)
	if err == nil && execjournal.RunName(rec.GetSandboxId()) != filepath.Base(dir) {
		err = fmt.Errorf("it is of sandbox %s, which has another place: %w", rec.GetSandboxId(), errdefs.ErrDataLoss)
	}
	if err != nil {
		r.problem(path, err)
		return false
	}
	f.Record = rec
	return true
}

// execs takes the last frame of each ID. What is in a good frame and is no exec, or one of a later release, is left out.
func (r *reader) execs(dirfd int, dir string, f *Found) {
	path := filepath.Join(dir, execjournal.ExecsName)
	at := map[string]int{}
	var left error
	_, whole := r.frames(dirfd, path, kindExec, func(fr frame) error {
		e, err := decodeExec(fr, f.Record.GetSandboxId())
		if err != nil {
			left = err
			return nil
		}
		if i, ok := at[e.GetExecId()]; ok {
			f.Execs[i] = e
			return nil
		}
		at[e.GetExecId()] = len(f.Execs)
		f.Execs = append(f.Execs, e)
		return nil
	})
	f.TornExecs = !whole || left != nil
	if last := newest(f.Execs); last > f.Record.GetLastSequence() && !f.Torn {
		f.Torn = true
		r.problem(path, fmt.Errorf("an exec has event %d, and the record ends with %d: %w", last, f.Record.GetLastSequence(), errdefs.ErrDataLoss))
	}
	if left != nil {
		r.problem(path, left)
	}
}

// newest is the sequence of the newest event that the execs know of. The record is written before them.
func newest(execs []*storev1.ExecRecord) (sequence uint64) {
	for _, e := range execs {
		sequence = max(sequence, e.GetDesired().GetStartedSequence(), e.GetEnd().GetSequence())
	}
	return sequence
}

func errNewer(v uint32) error {
	return fmt.Errorf("version %d is of a later release: %w", v, errdefs.ErrFailedPrecondition)
}

func decodeRecord(fr frame) (*storev1.SandboxRecord, error) {
	if fr.newer() {
		return nil, errNewer(fr.version)
	}
	var rec storev1.SandboxRecord
	if err := proto.Unmarshal(fr.payload, &rec); err != nil {
		return nil, fmt.Errorf("decode record: %w: %w", err, errdefs.ErrDataLoss)
	}
	switch {
	case rec.GetVersion() > version:
		return nil, errNewer(rec.GetVersion())
	case !execjournal.ValidExecID(rec.GetSandboxId()), rec.Spec == nil, rec.Desired == nil:
		return nil, fmt.Errorf("it has no valid ID, no spec or no intent: %w", errdefs.ErrDataLoss)
	}
	return &rec, nil
}

func decodeExec(fr frame, sandboxID string) (*storev1.ExecRecord, error) {
	if fr.newer() {
		return nil, errNewer(fr.version)
	}
	var e storev1.ExecRecord
	if err := proto.Unmarshal(fr.payload, &e); err != nil {
		return nil, fmt.Errorf("decode exec: %w: %w", err, errdefs.ErrDataLoss)
	}
	req := e.GetRequest()
	if !execjournal.ValidExecID(e.GetExecId()) || req.GetExecId() != e.GetExecId() || req.GetSandboxId() != sandboxID || e.GetDesired().GetNonce() == "" {
		return nil, fmt.Errorf("it has no valid ID, request or nonce: %w", errdefs.ErrDataLoss)
	}
	return &e, nil
}
