package execjournal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// The files of an exec with an inbox, beside those that every exec has:
//
//	<runRoot>/<16 hex>/ctl/exec/           /run/agbox/ctl/exec/         (ro)
//	├──<exec_id>.inbox                                                  daemon; what standard input is, only ever appended to
//	└──<exec_id>.inbox.closed                                           daemon; empty: standard input ends where the inbox does
//	<runRoot>/<16 hex>/out/agents/         /run/agbox/out/agents/       (rw)
//	├──<exec_id>.ndjson                                                 shim: a FIFO that anybody inside may write lines to
//	└──<exec_id>.words                                                  shim: what it read there, up to Request.OutboxLimitBytes
//	<outputRoot>/<sandbox_id>/             /var/log/agents-sandbox/     (rw)
//	└──<exec_id>.ack                                                    shim; decimal: bytes of the inbox that were handed over
//
// The shim reads an inbox once, from its start to its end, into a pipe. A supervisor that dies closes the pipe, and its tree
// is killed; nobody reads the inbox again. So an inbox need not survive the host, and nothing of it is flushed.
//
// Shims of the first releases have no words: there the .ndjson is a regular file with mode 0666, and it is the outbox.

// AgentsDir is the directory of outboxes inside out.
const AgentsDir = "agents"

// Variables of the environment that tell a program which agent it belongs to.
const (
	AgentIDEnv = "AGBOX_AGENT_ID"
	ExecIDEnv  = "AGBOX_EXEC_ID"
)

const (
	inboxSuffix  = ".inbox"
	closedSuffix = ".inbox.closed"
	ackSuffix    = ".ack"
	outboxSuffix = ".ndjson"
	wordsSuffix  = ".words"
	// maxAckBytes is more than any number needs.
	maxAckBytes = 32
)

// InboxName is the file in ctl/exec that standard input is read from.
func InboxName(execID string) string { return execID + inboxSuffix }

// ClosedName is the file in ctl/exec that says that nothing is appended to the inbox any more.
func ClosedName(execID string) string { return execID + closedSuffix }

// AckName is the file in the log directory that says how much of the inbox was handed over.
func AckName(execID string) string { return execID + ackSuffix }

// OutboxName is the file in out/agents that programs write to.
func OutboxName(execID string) string { return execID + outboxSuffix }

// WordsName is the file in out/agents that holds what the shim read from the outbox.
func WordsName(execID string) string { return execID + wordsSuffix }

// InboxID returns whose inbox a file of ctl/exec belongs to.
func InboxID(name string) (execID string, ok bool) {
	id, ok := strings.CutSuffix(name, closedSuffix)
	if !ok {
		id, ok = strings.CutSuffix(name, inboxSuffix)
	}
	return id, ok && ValidExecID(id)
}

// AppendInbox puts data at offset of the inbox of an exec, whose end that must be, and returns the size of the inbox. The
// exec need not have been asked for yet. It may be repeated with the same arguments, whatever became of the calls before:
// what was torn is completed, and what is there is left alone. Errors: invalid argument; not found before Prepare; failed
// precondition when the inbox ends before offset, holds something else from there on, or is closed; unavailable when the
// disk is full.
func (d *Dir) AppendInbox(sandboxID, execID string, offset int64, data []byte) (size int64, err error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return 0, err
	}
	if offset < 0 {
		return 0, invalidf("offset %d is negative", offset)
	}
	dir, err := openDir(d.execDir(sandboxID))
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, InboxName(execID), flags, 0o600)
	if err != nil {
		return 0, unavailablef("open the inbox of exec %s: %w", execID, err)
	}
	defer unix.Close(fd)
	size, err = sizeOf(fd)
	if err != nil {
		return 0, fmt.Errorf("stat the inbox of exec %s: %w", execID, err)
	}
	there, err := alreadyThere(fd, size, offset, data)
	if err != nil {
		return size, fmt.Errorf("inbox of exec %s: %w", execID, err)
	}
	return appendRest(dir, fd, execID, size, data[there:])
}

// alreadyThere returns how many bytes of data the file holds at offset.
func alreadyThere(fd int, size, offset int64, data []byte) (int, error) {
	if size < offset {
		return 0, refusedf("it ends at %d, before %d", size, offset)
	}
	n := int(min(size-offset, int64(len(data))))
	have, err := readAt(fd, n, offset)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(have, data[:n]) {
		return 0, refusedf("it holds something else at %d", offset)
	}
	return n, nil
}

func appendRest(dir, fd int, execID string, size int64, rest []byte) (int64, error) {
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
	for len(rest) > 0 {
		n, err := unix.Pwrite(fd, rest, size)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return size, unavailablef("append to the inbox of exec %s: %w", execID, err)
		}
		size, rest = size+int64(n), rest[n:]
	}
	return size, nil
}

// InboxSize returns where the next AppendInbox is to begin; 0 when there is no inbox. Errors: invalid argument; else the
// I/O error.
func (d *Dir) InboxSize(sandboxID, execID string) (int64, error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return 0, err
	}
	dir, err := openDir(d.execDir(sandboxID))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	err = unix.Fstatat(dir, InboxName(execID), &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("stat the inbox of exec %s: %w", execID, err)
	}
	return st.Size, nil
}

// CloseInbox ends standard input once all of the inbox was handed over. Idempotent. Errors: invalid argument; not found
// before Prepare; unavailable.
func (d *Dir) CloseInbox(sandboxID, execID string) error {
	if err := checkIDs(sandboxID, execID); err != nil {
		return err
	}
	return d.put(sandboxID, execID, "closed", ClosedName(execID), nil)
}
