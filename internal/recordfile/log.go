package recordfile

import (
	"bufio"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// scanBuffer of reads: a file of 10000 execs is some megabytes.
const scanBuffer = 256 << 10

// logFile is one of the two files of a sandbox and what is known of its content. Its methods need the box's lock.
type logFile struct {
	name, temp string
	kind       kind
	// slack is how much more than twice what counts the file may hold.
	slack int64
	// key tells which frames replace each other. Of one that a later release wrote nothing is known.
	key func(payload []byte) (string, error)

	// known: size and base are right. Until then the file is as another process left it.
	known bool
	size  int64 // bytes of good frames; behind them is nothing but the mark
	mark  int64 // bytes of the mark: none after a write that failed
	base  int64 // bytes of those that counted when that was last looked at
	// seen are the hashes of what counts in a file that was found: the start hands over what is there already. Nil later.
	seen  map[string]uint64
	dirty bool // not synced
	entry bool // nor is its name in the directory
}

func newRecordLog() logFile {
	return logFile{
		name: execjournal.RecordName, temp: execjournal.NewRecordName, kind: kindSandbox, slack: 64 << 10,
		key: func([]byte) (string, error) { return "", nil },
	}
}

func newExecLog() logFile {
	return logFile{name: execjournal.ExecsName, temp: execjournal.NewExecsName, kind: kindExec, slack: 1 << 20, key: execKey}
}

func execKey(payload []byte) (string, error) {
	var r storev1.ExecRecord
	if err := proto.Unmarshal(payload, &r); err != nil {
		return "", fmt.Errorf("decode exec: %w: %w", err, errdefs.ErrDataLoss)
	}
	return r.GetExecId(), nil
}

var hashSeed = maphash.MakeSeed()

// put appends a message with the given key, unless the file has it and is whole.
func (l *logFile) put(dirfd int, key string, m proto.Message) error {
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	b, err := encodeFrame(l.kind, frame{version, payload})
	if err != nil {
		return err
	}
	for range 2 {
		if err := l.learn(dirfd); err != nil {
			return err
		}
		hash := maphash.Bytes(hashSeed, payload)
		if have, ok := l.seen[key]; ok && have == hash && l.mark > 0 {
			return nil
		}
		if err = l.append(dirfd, b); err == nil && l.seen != nil {
			l.seen[key] = hash
		}
		if !errors.Is(err, errMoved) {
			break
		}
		l.forget() // somebody has removed it, or put another one there
	}
	return err
}

// forget makes the next look a new one.
func (l *logFile) forget() { l.known, l.seen = false, nil }

// errMoved: the file is not the one that was written to.
var errMoved = fmt.Errorf("the file has changed its size: %w", errdefs.ErrAborted)

func (l *logFile) append(dirfd int, b []byte) error {
	f, size, err := openFile(dirfd, l.name, unix.O_WRONLY|unix.O_CREAT)
	if err != nil {
		return err
	}
	defer f.Close()
	if size != l.size+l.mark {
		return errMoved
	}
	if _, err := f.WriteAt(slices.Concat(b, endMark), l.size); err != nil {
		// A torn frame must be cut off, or the next frame would follow it. If that fails, the next learn cuts it off. Until a
		// write succeeds there is no mark: the last frame is not the newest.
		l.known, l.mark = f.Truncate(l.size) == nil, 0
		return err
	}
	l.mark = int64(len(endMark))
	if l.size == 0 {
		l.base, l.entry = int64(len(b)), true
	}
	l.size += int64(len(b))
	l.dirty = true
	return nil
}

// learn reads a file of an earlier process and cuts off a torn frame. The next write appends the records that are newer than the
// file.
func (l *logFile) learn(dirfd int) error {
	if l.known {
		return nil
	}
	f, size, err := openFile(dirfd, l.name, unix.O_RDWR)
	if isGone(err) {
		l.size, l.mark, l.base, l.seen, l.known = 0, 0, 0, nil, true
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	frames, whole, err := marked(f, size)
	if err != nil {
		return err
	}
	live, good, err := l.look(f, frames)
	if errdefs.IsDataLoss(err) {
		whole, err = false, f.Truncate(good)
	}
	if err != nil {
		return err
	}
	if l.mark = int64(len(endMark)); !whole {
		l.mark = 0
	}
	l.size, l.base, l.seen, l.known = good, 0, make(map[string]uint64, len(live.at)), true
	for key, at := range live.at {
		l.base += at.size
		l.seen[key] = at.hash
	}
	if len(live.others) > 0 {
		l.seen = nil // one of them may be the newest
	}
	l.dirty, l.entry = true, true // nobody knows
	return nil
}

// place is where a frame is.
type place struct {
	offset, size int64
	hash         uint64
}

// counting are the frames of a file that count.
type counting struct {
	at map[string]place
	// others are of a later release: who knows what they replace.
	others []place
}

// look finds what counts in the first size bytes. Errors: as scan; ErrDataLoss also for a payload that does not decode,
// with what comes before it.
func (l *logFile) look(f *os.File, size int64) (c counting, good int64, err error) {
	c.at = map[string]place{}
	good, err = scan(bufio.NewReaderSize(section(f, 0, size), scanBuffer), size, l.kind, func(offset int64, fr frame) error {
		at := place{offset, fr.size(), maphash.Bytes(hashSeed, fr.payload)}
		if fr.newer() {
			c.others = append(c.others, at)
			return nil
		}
		key, err := l.key(fr.payload)
		if err != nil {
			return err
		}
		c.at[key] = at
		return nil
	})
	return c, good, err
}

// full reports whether most of the file counts no more.
func (l *logFile) full() bool { return l.known && l.size > 2*l.base+l.slack }
