package execjournal

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// InboxAcked returns how many bytes of the inbox the shim reports to have written to the pipe that is the command's standard
// input; 0 before the first report. The command need not have read them. Errors: invalid argument; ErrMalformed; else
// the I/O error.
func (d *Dir) InboxAcked(sandboxID, execID string) (int64, error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return 0, err
	}
	dir, err := openDir(d.Paths(sandboxID).Logs)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	data, err := ReadFile(dir, AckName(execID), maxAckBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: %s is not a number of bytes", ErrMalformed, AckName(execID))
	}
	return n, nil
}

// Ack writes the number that InboxAcked reads; the shim calls it. dir is the log directory.
func Ack(dir int, execID string, offset int64) error {
	data := strconv.FormatInt(offset, 10) + "\n"
	return Replace(dir, TempName(execID, "ack"), AckName(execID), []byte(data), PrivateMode, false)
}
