package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

const (
	// sshConnect bounds ssh's own connect in seconds; the bound of the system is minutes.
	sshConnect = "30"
	// sshLogin bounds a whole connect, in which a user may type a passphrase: sshd itself gives up after 2 minutes.
	sshLogin = 3 * time.Minute
	// Pauses between two ssh processes: a server may ban clients that come more often.
	sshFirstPause = time.Second
	sshMaxPause   = 15 * time.Second
	// sshEnd is how long ssh may take to exit after its output ended or it got SIGTERM.
	sshEnd = 2 * time.Second
	// tailBytes is how much of a stderr is kept, in bytes.
	tailBytes = 4 << 10
)

// Exit codes of ssh: its own, and those of the command on the far side.
const (
	sshFailed     = 255
	notExecutable = 126 // from the shell there
	notFound      = 127
	// ExitHopeless is the exit code of "agboxd dial-stdio" when no daemon can answer at the socket; other failures may pass.
	ExitHopeless = 2
)

// sshVia reaches a daemon through the program ssh and "agboxd dial-stdio" on its host.
type sshVia struct {
	outcome
	host    string // for errors
	command []string
	running sync.WaitGroup
}

// newSSH checks each part of the URL that becomes an argument of ssh, or a word of the shell on the far side.
func newSSH(host string, u *url.URL, noPrompt bool) (via, error) {
	name, user := u.Hostname(), u.User.Username()
	_, secret := u.User.Password()
	switch {
	case secret:
		return nil, badHost("ssh://"+user+"@"+u.Host+u.Path, "it contains a password; let ssh ask for it, or use a key")
	case hasUnsafe(name):
		return nil, badHost(host, "the host starts with \"-\" or has characters that a shell would read")
	case hasUnsafe(user), u.User != nil && user == "":
		return nil, badHost(host, "the user is empty, starts with \"-\" or has characters that a shell would read")
	case strings.HasSuffix(u.Host, ":"):
		return nil, badHost(host, "the port is empty")
	}
	args := []string{"-T", "-o", "ConnectTimeout=" + sshConnect}
	if noPrompt {
		args = append(args, "-o", "BatchMode=yes")
	}
	if user != "" {
		args = append(args, "-l", user)
	}
	if port := u.Port(); port != "" {
		args = append(args, "-p", port)
	}
	args = append(args, "--", name, "agboxd", "dial-stdio")
	if u.Path != "" && u.Path != "/" {
		if strings.ContainsFunc(u.Path, func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`'\!`, r) }) {
			return nil, badHost(host, "the socket's path has a quote, backslash, exclamation mark or control character")
		}
		args = append(args, "--socket", "'"+u.Path+"'") // ssh gives the far side one line for its shell
	}
	return &sshVia{host: host, command: args}, nil
}

// hasUnsafe is ssh's own rule, of version 9.6 on: older ones may give such a word to the shell of a ProxyCommand.
func hasUnsafe(word string) bool {
	return strings.HasPrefix(word, "-") || strings.ContainsFunc(word, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune("'`\"$\\;&<>|(){}", r)
	})
}

func (s *sshVia) options() []grpc.DialOption {
	return probed(connectWithin(sshLogin, sshFirstPause, sshMaxPause))
}

func (s *sshVia) close() { s.running.Wait() }

func (s *sshVia) unreachable(cause string) string { return s.describe(s.host, cause) }

// dial starts one ssh. The connection is its stdin and stdout.
func (s *sshVia) dial(ctx context.Context) (net.Conn, error) {
	conn, err := s.start()
	if err != nil {
		s.note(err)
		return nil, err
	}
	begun, err := s.begin(ctx, conn, conn.process.why)
	s.note(err)
	return begun, err
}

func (s *sshVia) start() (*sshConn, error) {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return nil, &refusal{"the program ssh is not in $PATH; install an OpenSSH client"}
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	ctx, kill := context.WithCancel(context.Background())
	// ^C is for this program, which may still have calls to make; so ssh ignores SIGINT, and stays in the terminal's foreground to ask for
	// passphrases there. Its arguments are no text of this shell.
	args := append([]string{"-c", `trap "" INT; exec "$@"`, "sh", program}, s.command...)
	p := &sshProcess{cmd: exec.CommandContext(ctx, "/bin/sh", args...), kill: kill, done: make(chan struct{})}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs, theirs, &p.said
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = sshEnd // a shared master of ssh may keep stderr open
	if err := p.cmd.Start(); err != nil {
		kill()
		return nil, errors.Join(fmt.Errorf("start ssh: %w", err), ours.Close())
	}
	s.running.Go(func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	})
	return &sshConn{Conn: ours, process: p}, nil
}

// socketPair returns one end of a stream as a connection and the other for a child.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	mine, theirs := os.NewFile(uintptr(fds[0]), "ssh"), os.NewFile(uintptr(fds[1]), "ssh")
	defer mine.Close() // FileConn duplicates it
	conn, err := net.FileConn(mine)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// sshConn is a connection whose close ends its ssh.
type sshConn struct {
	net.Conn
	process *sshProcess
}

// Close ends ssh and waits for it.
func (c *sshConn) Close() error {
	err := c.Conn.Close()
	c.process.end()
	return err
}

type sshProcess struct {
	cmd  *exec.Cmd
	kill context.CancelFunc
	said tail
	done chan struct{}
	err  error // of Wait, once done is closed
}

func (p *sshProcess) end() {
	p.kill()
	<-p.done
}

// why returns why the output of ssh ended: what ssh or the far side wrote to stderr.
func (p *sshProcess) why(error) error {
	timer := time.NewTimer(sshEnd)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	}
	p.end()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		code = exit.ExitCode()
	}
	text := cmp.Or(p.said.String(), fmt.Sprintf("ssh ended: %v", p.cmd.ProcessState))
	switch code {
	case notFound, notExecutable:
		return &refusal{text + "; install agboxd on that host, in the $PATH of its ssh sessions"}
	case sshFailed, ExitHopeless:
		return &refusal{text}
	}
	return errors.New(text)
}

// tail keeps the last bytes written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if extra := len(t.last) - tailBytes; extra > 0 {
		t.last = append(t.last[:0], t.last[extra:]...)
	}
	return len(p), nil
}

// String returns the lines that have text, the last five, in one.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range bytes.Lines(t.last) {
		if text := strings.TrimSpace(strings.TrimPrefix(string(line), "agboxd: ")); text != "" {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}
