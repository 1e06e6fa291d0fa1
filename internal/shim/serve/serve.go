// Package serve is the worker of a sandbox: it serves the streams for files and ports of one user, inside the container. The process runs
// as that user, so the kernel decides what it may do. Each stream has a connection and a goroutine of its own, so a slow reader stalls no
// other. The death of a worker cuts its connections and nothing else: it holds no state.
package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/filetree"
)

const (
	// idleTime is how long a worker stays without a connection.
	idleTime = time.Minute
	// requestPatience bounds the wait for the first frame of a connection.
	requestPatience = 30 * time.Second
)

// Worker serves connections.
type Worker struct {
	// Home is the directory to which relative paths are relative.
	Home string
	// Broken is why the user does not exist; nil: it does. It is the answer to every request.
	Broken error
	// Tables returns the contents of /etc/passwd and /etc/group.
	Tables func() (users, groups []byte)

	active atomic.Int64
	idle   chan struct{} // receives when a connection ends
}

// Run serves the connections that arrive on fd, a Unix socket, as SCM_RIGHTS, one beside each byte. It returns when the other end is closed,
// and after a minute without a connection: it then refuses further ones, which the sender sees with poll(2), and serves those that were sent before.
func (w *Worker) Run(fd int) error {
	w.idle = make(chan struct{}, 1)
	conn, err := connection(fd)
	if err != nil {
		return err
	}
	w.accept(conn)
	return nil
}

// connection returns the connected Unix socket fd, and closes fd.
func connection(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a Unix socket")
	}
	return conn, nil
}

// accept serves the connections that arrive on conn.
func (w *Worker) accept(conn *net.UnixConn) {
	for {
		_ = conn.SetReadDeadline(time.Now().Add(idleTime))
		c, err := receive(conn)
		switch {
		case err == nil:
			w.start(c)
		case errors.Is(err, os.ErrDeadlineExceeded) && w.active.Load() > 0:
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.leave(conn)
			return
		default:
			return // init has closed its end, or died
		}
	}
}

// leave refuses further connections, so that init starts another worker for them, and serves those that were on their way.
func (w *Worker) leave(conn *net.UnixConn) {
	_ = errors.Join(conn.CloseWrite(), conn.CloseRead()) // both: then init sees it with poll(2) before it sends
	_ = conn.SetReadDeadline(time.Time{})
	for {
		c, err := receive(conn)
		if err != nil {
			break
		}
		w.start(c)
	}
	for w.active.Load() > 0 {
		<-w.idle
	}
}

// receive returns the next connection. A message without one is ignored.
func receive(conn *net.UnixConn) (*net.UnixConn, error) {
	var data [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := conn.ReadMsgUnix(data[:], oob)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, os.ErrClosed
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(messages) != 1 {
			continue
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			continue
		}
		if c, err := connection(fds[0]); err == nil {
			return c, nil
		}
	}
}

func (w *Worker) start(c *net.UnixConn) {
	w.active.Add(1)
	go func() {
		defer func() {
			c.Close()
			w.active.Add(-1)
			select {
			case w.idle <- struct{}{}:
			default:
			}
		}()
		if err := w.serve(c); err != nil {
			_ = channel.Write(c, failure(err))
		}
	}()
}

// stream is one connection with its request.
type stream struct {
	*net.UnixConn
	call channel.Call
	path string // of the call, absolute
	names
}

// serve runs one request. It returns the error to report to the daemon.
func (w *Worker) serve(c *net.UnixConn) error {
	_ = c.SetReadDeadline(time.Now().Add(requestPatience))
	f, err := channel.NewReader(c).Read()
	if err != nil {
		return nil // the daemon has left
	}
	_ = c.SetReadDeadline(time.Time{})
	s := &stream{UnixConn: c, names: names{tables: w.Tables}}
	if f.Kind != channel.Request || json.Unmarshal(f.Data, &s.call) != nil {
		return &channel.Failed{Reason: channel.BadCall, Message: "the request does not decode"}
	}
	if w.Broken != nil {
		return &channel.Failed{Reason: channel.UserUnknown, Message: w.Broken.Error()}
	}
	if strings.ContainsRune(s.call.Path+s.call.To, 0) {
		return &os.PathError{Op: "open", Path: s.call.Path, Err: unix.ENOENT}
	}
	s.path = w.absolute(s.call.Path)
	handlers := map[channel.Op]func(*stream) error{
		channel.Stat: statFile, channel.List: listDir, channel.Read: readFile, channel.WriteFile: writeFile, channel.MakeDir: makeDir,
		channel.Remove: removeFile, channel.Move: w.moveFile, channel.Watch: watchDir, channel.Tar: packTree, channel.Untar: unpackTree,
		channel.Dial: dialPort,
	}
	handle := handlers[s.call.Op]
	if handle == nil {
		return &channel.Failed{Reason: channel.BadCall, Message: fmt.Sprintf("this sandbox's agbox-shim does not know %q", s.call.Op)}
	}
	return handle(s)
}

// absolute does not clean the path: behind a symbolic link, ".." is not what the text says.
func (w *Worker) absolute(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return strings.TrimSuffix(w.Home, "/") + "/" + name
}

// result sends the only or first answer.
func (s *stream) result(v any) error { return channel.WriteJSON(s, channel.Result, v) }

func (s *stream) end() error { return channel.Write(s, channel.Frame{Kind: channel.End}) }

// reasons of errors of the kernel.
var reasons = []struct {
	err    error
	reason string
}{
	{filetree.ErrArchive, channel.ArchiveInvalid},
	{filetree.ErrType, channel.FileType},
	{unix.ENOENT, channel.FileNotFound},
	{unix.EEXIST, channel.FileExists},
	{unix.EACCES, channel.FilePermission},
	{unix.EPERM, channel.FilePermission},
	{unix.EROFS, channel.FilePermission},
	{unix.ENOTDIR, channel.FileType},
	{unix.EISDIR, channel.FileType},
	{unix.ELOOP, channel.FileType},
	{unix.ENOTEMPTY, channel.FileNotEmpty},
	{unix.EBUSY, channel.FileBusy},
	{unix.ETXTBSY, channel.FileBusy},
	{unix.ENOSPC, channel.FileNoSpace},
	{unix.EDQUOT, channel.FileNoSpace},
}

// failure returns the frame that reports an error.
func failure(err error) channel.Frame {
	const most = 1 << 10 // bytes
	f := channel.Frame{Kind: channel.Failure, Text: channel.FileIO}
	text := err.Error()
	f.Data = []byte(strings.ToValidUTF8(text[:min(len(text), most)], "\uFFFD"))
	if failed, ok := errors.AsType[*channel.Failed](err); ok {
		f.Text = failed.Reason
		return f
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			f.Text = r.reason
			return f
		}
	}
	return f
}

// wrongType is the error of an operation on a file of another type.
func wrongType(op, name, want string) error {
	return &channel.Failed{Reason: channel.FileType, Message: fmt.Sprintf("%s %s: it is not a %s", op, name, want)}
}

// pathError names the path in an error of a plain system call.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}
