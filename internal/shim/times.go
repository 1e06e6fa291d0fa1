package shim

import (
	"bytes"
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// lineTimes stores when the lines of a log were read. A nil one stores nothing. A crash loses no more than the entry of a line that the log lacks.
type lineTimes struct {
	file   int
	size   int64 // bytes of complete entries
	offset int64 // in the log, of the next output
	inLine bool  // the output ends within a line
	last   execjournal.LineTime
	due    bool // last is not in the file yet
}

// The file may be larger than the log by this much; beyond it, it grows by one entry a second at most.
const (
	timesAllowance = 1 << 20
	slowTimesApart = time.Second
)

// continueTimes opens the times of a log of the given size. Times of another log, which was removed, are dropped. It returns nil if there can't be
// any: the main process runs without them.
func continueTimes(logs int, name string, logSize int64) *lineTimes {
	fd, err := openOwn(logs, name, unix.O_RDWR)
	if err != nil {
		say("the times of the main process's output are not stored: %v", err)
		return nil
	}
	t := &lineTimes{file: fd, offset: logSize}
	var st unix.Stat_t
	if err = errors.Join(unix.Fstat(fd, &st), execjournal.Entrust(logs, fd, -1, execjournal.PrivateMode)); err == nil {
		t.size = st.Size - st.Size%execjournal.LineTimeBytes
		err = t.readLast()
	}
	if err != nil {
		say("the times of the main process's output are not stored: %v", err)
		unix.Close(fd)
		return nil
	}
	return t
}

func (t *lineTimes) readLast() error {
	if t.size == 0 {
		return nil
	}
	data := make([]byte, execjournal.LineTimeBytes)
	n, err := unix.Pread(t.file, data, t.size-execjournal.LineTimeBytes)
	if err != nil || n < len(data) {
		return errors.Join(io.ErrUnexpectedEOF, err)
	}
	if t.last = execjournal.ParseLineTime(data); t.last.Offset < 0 || t.last.Offset > t.offset {
		t.last, t.size = execjournal.LineTime{}, 0
		return unix.Ftruncate(t.file, 0)
	}
	return nil
}

// note records the present time for the first line that starts in data, which is the next output.
func (t *lineTimes) note(data []byte) {
	if t == nil || len(data) == 0 {
		return
	}
	inLine, offset := t.inLine, t.offset
	t.offset += int64(len(data))
	t.inLine = data[len(data)-1] != '\n'
	if inLine {
		end := bytes.IndexByte(data, '\n') + 1
		if end == 0 || end == len(data) {
			return
		}
		offset += int64(end)
	}
	now := time.Now()
	if t.size > t.offset+timesAllowance && now.Sub(t.last.At).Abs() < slowTimesApart {
		return
	}
	t.last, t.due = execjournal.LineTime{Offset: offset, At: now}, true
}

// write stores the noted time. It returns an error only if the disk is full; otherwise the output must not wait.
func (t *lineTimes) write() error {
	if t == nil || !t.due {
		return nil
	}
	n, err := unix.Pwrite(t.file, t.last.Bytes(), t.size)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Pwrite(t.file, t.last.Bytes(), t.size)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return err
	}
	if err == nil && n < execjournal.LineTimeBytes {
		return unix.ENOSPC
	}
	if err == nil {
		t.size += execjournal.LineTimeBytes
	}
	t.due = false
	return nil
}

// sync makes the times durable, as far as the disk allows.
func (t *lineTimes) sync() {
	if t != nil && t.size > 0 {
		_ = unix.Fdatasync(t.file)
	}
}
