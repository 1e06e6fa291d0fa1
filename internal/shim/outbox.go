package shim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// outbox receives the words of an agent's programs. It consists of a FIFO that every user in the container may write to, and a file that
// only the supervisor writes to. So the file has a size limit, and no program can extend, truncate or punch holes into it. Each exec gets
// new ones.
type outbox struct {
	*stream
	agents int // the directory of outboxes
	id     string
}

const (
	// openMode lets every user write to the FIFO, and only root read from it.
	openMode = 0o622
	shutMode = 0o600
)

// makeOutbox creates the FIFO and the file of an exec's outbox. agboxd reads whichever it finds first, so the file is created before the
// FIFO.
func makeOutbox(out, id string, limit int64) (*outbox, error) {
	agents, err := execjournal.OpenAgents(out, true)
	if err != nil {
		return nil, err
	}
	b := &outbox{agents: agents, id: id, stream: &stream{pipe: -1, dir: agents, limit: limit, final: -1}}
	fifo, words := execjournal.OutboxName(id), execjournal.WordsName(id)
	for _, name := range []string{fifo, words} {
		if err := unix.Unlinkat(agents, name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove what is in the place of %s: %w", name, err)
		}
	}
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_APPEND | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if b.log, err = unix.Openat(agents, words, flags, execjournal.PrivateMode); err != nil {
		return nil, fmt.Errorf("make %s: %w", words, err)
	}
	if err := unix.Mknodat(agents, fifo, unix.S_IFIFO|shutMode, 0); err != nil {
		return nil, fmt.Errorf("make %s: %w", fifo, err)
	}
	// The supervisor's own write end prevents an end of file when the last writer closes the FIFO.
	if b.pipe, err = unix.Openat(agents, fifo, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open %s: %w", fifo, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(b.pipe, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil, fmt.Errorf("%s is not the FIFO that was made", fifo)
	}
	return b, unix.Fchmod(b.pipe, openMode) // Fchmod ignores the umask
}

// settle closes the outbox once its limit is reached.
func (b *outbox) settle() {
	if b != nil && b.limit > 0 && b.taken >= b.limit {
		b.close()
	}
}

// close makes opening the FIFO fail for programs, and drops later output of those that have it open. Output written before is kept up to
// the limit.
func (b *outbox) close() {
	if b.closed {
		return
	}
	say("exec %s: its outbox takes nothing more after %d bytes", b.id, b.taken)
	if err := unix.Fchmod(b.pipe, shutMode); err != nil {
		say("exec %s: close its outbox: %v", b.id, err)
	}
	b.drain(make([]byte, 64<<10))
	b.closed = true
}

// remove unlinks the FIFO. No process reads it any more, so a program that opened it would block.
func (b *outbox) remove() {
	if b != nil {
		_ = unix.Unlinkat(b.agents, execjournal.OutboxName(b.id), 0)
	}
}

// speakTime is how long a program waits until the outbox accepts its line. The supervisor reads nothing while the disk is full.
const speakTime = 20 * time.Second

var errShut = errors.New("the outbox of this agent takes nothing more: the sandbox has used up what it may store (artifacts.exec_log_max_bytes, artifacts.sandbox_max_bytes)")

// appendOutbox writes a line, which ends in a newline, into the outbox of an exec. Lines of concurrent calls do not mix. It writes a newline
// first, because a program that writes to the FIFO directly may have left an unterminated line; the daemon ignores empty lines.
func appendOutbox(out, id string, line []byte) error {
	path := out + "/" + execjournal.AgentsDir + "/" + execjournal.OutboxName(id)
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EACCES):
		return errShut
	case errors.Is(err, unix.ENXIO):
		return fmt.Errorf("open %s: the daemon does not read it any more", path)
	case err != nil:
		return fmt.Errorf("open %s: %w", path, err)
	}
	fifo := os.NewFile(uintptr(fd), path)
	defer fifo.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return fmt.Errorf("%s is not a FIFO", path)
	}
	if st.Mode&0o777 == shutMode { // root may open it despite the mode
		return errShut
	}
	deadline := time.Now().Add(speakTime)
	err = lockUntil(fd, deadline)
	if err == nil {
		err = fifo.SetWriteDeadline(deadline)
	}
	if err == nil {
		if _, err = fifo.Write(append([]byte{'\n'}, line...)); errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("nothing was read of it for %v, as on a full disk: %w", speakTime, os.ErrDeadlineExceeded)
		}
	}
	if err != nil {
		return fmt.Errorf("write to %s: %w", path, err)
	}
	return nil
}

// lockUntil locks the FIFO, so that no other call writes between the pieces of a long line.
func lockUntil(fd int, deadline time.Time) error {
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("another program holds it: %w", os.ErrDeadlineExceeded)
		}
		time.Sleep(5 * time.Millisecond) // flock(2) has no timeout
	}
}

// A word is a message from a program inside an agent's exec to agboxd: one line of the outbox, in the native format of package
// internal/agent/dialect.
const (
	wordCheckpoint = "checkpoint"
	wordDone       = "done"
	wordStatus     = "status"
	// maxWordBytes is the longest text that agboxd stores.
	maxWordBytes = 64 << 10
	wordUsage    = "usage: agbox-shim checkpoint TEXT|-, agbox-shim done [OUTCOME], agbox-shim status TEXT|-"
)

// word is one line of the outbox, as JSON.
type word struct {
	Type    string `json:"type"`
	Text    string `json:"text,omitempty"`
	Outcome string `json:"outcome,omitempty"`
}

func isWord(args []string) bool {
	return len(args) > 0 && (args[0] == wordCheckpoint || args[0] == wordDone || args[0] == wordStatus)
}

// runWord appends a word to the outbox of the exec that it is called in. It reads standard input only if the text is "-", because standard
// input may be the agent's own, with its prompts.
func runWord(at Places, args []string, stdin io.Reader) int {
	w, text := word{Type: args[0]}, ""
	switch {
	case len(args) == 2:
		text = args[1]
	case len(args) != 1 || w.Type != wordDone:
		say(wordUsage)
		return 2
	}
	if text == "-" && w.Type != wordDone {
		data, err := io.ReadAll(io.LimitReader(stdin, maxWordBytes+1))
		if err != nil {
			say("%s: read the text: %v", w.Type, err)
			return 1
		}
		text = string(data)
	}
	if len(text) > maxWordBytes {
		say("%s: the text is longer than %d bytes", w.Type, maxWordBytes)
		return 1
	}
	if w.Text = text; w.Type == wordDone {
		w.Text, w.Outcome = "", text
	}
	if err := speak(at, w); err != nil {
		say("%s: %v", w.Type, err)
		return 1
	}
	return 0
}

func speak(at Places, w word) error {
	id := os.Getenv(execjournal.ExecIDEnv)
	if !execjournal.ValidExecID(id) {
		return fmt.Errorf("this is no agent: %s is not set", execjournal.ExecIDEnv)
	}
	line, err := execjournal.Encode(w)
	if err != nil {
		return err
	}
	return appendOutbox(at.Out, id, line)
}
