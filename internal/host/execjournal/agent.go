package execjournal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// The files of an exec with an inbox, in addition to those of every exec:
//
//	<runRoot>/<16 hex>/ctl/exec/           /run/agbox/ctl/exec/         (ro)
//	├──<exec_id>.inbox                                                  daemon; the content of standard input, append-only
//	├──<exec_id>.inbox.closed                                           daemon; empty: the inbox is complete, standard input ends with it
//	└──<exec_id>.hangup                                                 daemon; empty: the terminal's session gets HUP, once
//	<runRoot>/<16 hex>/out/agents/         /run/agbox/out/agents/       (rw)
//	├──<exec_id>.ndjson                                                 shim: a FIFO that any process in the container may write lines to
//	└──<exec_id>.words                                                  shim: the lines read from the FIFO, up to Request.OutboxLimitBytes
//	<outputRoot>/<sandbox_id>/             /var/log/agents-sandbox/     (rw)
//
// The shim reads an inbox once, from start to end, into a pipe. When the supervisor dies, the pipe is closed and the process
// tree is killed; the inbox is not read again. So an inbox need not survive a crash of the host, and is never flushed.

// AgentsDir is the directory of outboxes inside out.
const AgentsDir = "agents"

// ExecIDEnv is the environment variable with the exec ID of a program's agent.
const ExecIDEnv = "AGBOX_EXEC_ID"

const (
	inboxSuffix  = ".inbox"
	closedSuffix = ".inbox.closed"
	hangupSuffix = ".hangup"
	outboxSuffix = ".ndjson"
	wordsSuffix  = ".words"
)

// InboxName is the file in ctl/exec with the content of standard input.
func InboxName(execID string) string { return execID + inboxSuffix }

// ClosedName is the file in ctl/exec that marks the inbox as complete.
func ClosedName(execID string) string { return execID + closedSuffix }

// HangupName is the file in ctl/exec that asks for HUP to the session of an exec's terminal.
func HangupName(execID string) string { return execID + hangupSuffix }

// OutboxName is the file in out/agents that programs write to.
func OutboxName(execID string) string { return execID + outboxSuffix }

// WordsName is the file in out/agents with the lines that the shim read from the outbox.
func WordsName(execID string) string { return execID + wordsSuffix }

// InboxID returns the exec that a file of ctl/exec is the inbox, the closed marker or the hang-up of.
func InboxID(name string) (execID string, ok bool) {
	return ownerOf(name, closedSuffix, inboxSuffix, hangupSuffix)
}

// AppendInbox writes data at offset to the inbox of an exec, where offset must be the inbox's end, and returns the new size.
// The exec need not have been requested yet. A retry with the same arguments is safe after any outcome: a torn write is
// completed, and existing data is kept. Errors: invalid argument; not found before Prepare; failed precondition when the
// inbox ends before offset, contains other data from offset on, or is closed; unavailable when the
// disk is full.
func (d *Dir) AppendInbox(sandboxID, execID string, offset int64, data []byte) (size int64, err error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return 0, err
	}
	if offset < 0 {
		return 0, invalidf("offset %d is negative", offset)
	}
	dir, err := OpenDir(d.execDir(sandboxID))
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, InboxName(execID), flags, 0o600)
	if err != nil {
		return 0, unavailablef("open the inbox of exec %s: %w", execID, err)
	}
	inbox := os.NewFile(uintptr(fd), InboxName(execID))
	defer inbox.Close()
	if err := Entrust(dir, fd, -1, PrivateMode); err != nil {
		return 0, fmt.Errorf("inbox of exec %s: %w", execID, err)
	}
	size, err = sizeOf(inbox)
	if err != nil {
		return 0, fmt.Errorf("inbox of exec %s: %w", execID, err)
	}
	there, err := alreadyThere(inbox, size, offset, data)
	if err != nil {
		return size, fmt.Errorf("inbox of exec %s: %w", execID, err)
	}
	return appendRest(dir, inbox, execID, size, data[there:])
}

// alreadyThere returns how many bytes of data the file contains at offset.
func alreadyThere(f *os.File, size, offset int64, data []byte) (int64, error) {
	if size < offset {
		return 0, refusedf("it ends at byte %d, before the offset %d", size, offset)
	}
	n := min(size-offset, int64(len(data)))
	have, err := readAt(f, n, offset)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(have, data[:n]) {
		return 0, refusedf("it contains other data at the offset %d", offset)
	}
	return n, nil
}

func appendRest(dir int, f *os.File, execID string, size int64, rest []byte) (int64, error) {
	if len(rest) == 0 {
		return size, nil
	}
	closed, err := Exists(dir, ClosedName(execID))
	if err != nil {
		return size, err
	}
	if closed {
		return size, refusedf("the inbox of exec %s is closed", execID)
	}
	n, err := f.WriteAt(rest, size)
	if err != nil {
		err = unavailablef("append to the inbox of exec %s: %w", execID, err)
	}
	return size + int64(n), err
}

// InboxSize returns the offset for the next AppendInbox; 0 when there is no inbox. Errors: invalid argument; else the
// I/O error.
func (d *Dir) InboxSize(sandboxID, execID string) (int64, error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return 0, err
	}
	var st unix.Stat_t
	err := inDir(d.execDir(sandboxID), func(dir int) error {
		err := unix.Fstatat(dir, InboxName(execID), &st, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("stat the inbox of exec %s: %w", execID, err)
		}
		return nil
	})
	return st.Size, err
}

// CloseInbox ends standard input after the whole inbox was written to it. Idempotent. Errors: invalid argument; not found
// before Prepare; unavailable.
func (d *Dir) CloseInbox(sandboxID, execID string) error {
	return d.put(sandboxID, execID, "closed", ClosedName(execID), nil)
}

// HangUp sends HUP to the session of an exec's terminal, once. Idempotent. Errors: as for Start.
func (d *Dir) HangUp(sandboxID, execID string) error {
	return d.put(sandboxID, execID, "hangup", HangupName(execID), nil)
}
