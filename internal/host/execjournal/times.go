package execjournal

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// LineTime is the time at which the supervisor of a main process read the line of a log that starts at an offset. It is also the time of the
// lines after it, up to the next LineTime of the file.
type LineTime struct {
	Offset int64
	At     time.Time
}

// LineTimeBytes is the size of a LineTime in its file: the offset and the Unix time in nanoseconds, both big-endian.
const LineTimeBytes = 16

// Bytes returns the form in the file.
func (l LineTime) Bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(l.Offset)), uint64(l.At.UnixNano()))
}

// ParseLineTime returns the LineTime in the first LineTimeBytes of data.
func ParseLineTime(data []byte) LineTime {
	return LineTime{int64(binary.BigEndian.Uint64(data)), time.Unix(0, int64(binary.BigEndian.Uint64(data[8:])))}
}

// TimesName is the file with the times of the lines of a log.
func TimesName(log string) string { return strings.TrimSuffix(log, logSuffix) + timesSuffix }

// LineTimes reads the times of the lines of a log. They are untrusted: neither offsets nor times need to be in order.
type LineTimes struct {
	file *os.File
	buf  []byte // entries from number base on
	base int64
}

// OpenTimes opens the times of a log; nil if there are none, as in the containers of earlier releases. Errors: as OpenOutput.
func (d *Dir) OpenTimes(sandboxID, execID string, stderr bool) (*LineTimes, error) {
	f, err := d.openOutput(sandboxID, execID, stderr, TimesName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &LineTimes{file: f}, nil
}

// Len returns the present number of entries.
func (l *LineTimes) Len() (int64, error) {
	size, err := sizeOf(l.file)
	return size / LineTimeBytes, err
}

// At returns the entry with number i, which must be less than Len.
func (l *LineTimes) At(i int64) (LineTime, error) {
	if at := (i - l.base) * LineTimeBytes; at < 0 || at+LineTimeBytes > int64(len(l.buf)) {
		if cap(l.buf) == 0 {
			l.buf = make([]byte, 4096*LineTimeBytes)
		}
		n, err := l.file.ReadAt(l.buf[:cap(l.buf)], i*LineTimeBytes)
		if n < LineTimeBytes {
			l.buf = l.buf[:0]
			return LineTime{}, errors.Join(io.ErrUnexpectedEOF, err)
		}
		l.base, l.buf = i, l.buf[:n-n%LineTimeBytes]
	}
	return ParseLineTime(l.buf[(i-l.base)*LineTimeBytes:]), nil
}

// Search returns the number of the first entry for which is returns true, and Len if there is none, as sort.Search does.
func (l *LineTimes) Search(is func(LineTime) bool) (int64, error) {
	n, err := l.Len()
	if err != nil {
		return 0, err
	}
	data := make([]byte, LineTimeBytes)
	i := sort.Search(int(n), func(i int) bool {
		if _, failed := l.file.ReadAt(data, int64(i)*LineTimeBytes); failed != nil {
			err = failed
			return true
		}
		return is(ParseLineTime(data))
	})
	return int64(i), err
}

// Close closes the file.
func (l *LineTimes) Close() error { return l.file.Close() }

// openOutput opens the log of an exec, or the file that belongs to it. Errors: invalid argument; fs.ErrNotExist; ErrMalformed; the I/O error.
func (d *Dir) openOutput(sandboxID, execID string, stderr bool, which func(log string) string) (*os.File, error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return nil, err
	}
	dir, err := OpenDir(d.Paths(sandboxID).Logs)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	name := StdoutName(execID)
	if stderr {
		name = StderrName(execID)
	}
	return openRegular(dir, which(name))
}
