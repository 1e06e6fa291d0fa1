package shim

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/agent/dialect/acp"
)

const (
	// acpThreads is the largest number of threads that the client's goroutines need: for the reads of the inbox and of the agent, the write
	// to the agent, the wait for its exit, and signals.
	acpThreads = 6
	// acpGrace is the time between TERM and KILL for an agent that opened no session.
	acpGrace = 5 * time.Second
	// exitNoSession is the exit code for an agent that opened no session.
	exitNoSession = 1
)

// runACP is the command of an exec whose agent speaks ACP. It translates between the inbox, which is its standard input, and the agent,
// whose standard output becomes its own. It returns the agent's exit code, 128 + signal if a signal killed the agent, 126 or 127 if it
// could not be started, and 1 if it opened no session.
func runACP(args []string) int {
	o, command, err := acp.ParseArgs(args)
	if err == nil && o.Cwd == "" {
		o.Cwd, err = os.Getwd()
	}
	if err == nil {
		err = warmThreads(acpThreads)
	}
	if err != nil {
		say("acp: %v", err)
		return 2
	}
	// The supervisor sends TERM to the agent as well; this process runs until the agent has exited. Handlers, unlike ignored signals, are
	// not inherited.
	signal.Notify(make(chan os.Signal, 1), append([]os.Signal{unix.SIGTERM, unix.SIGINT}, sunk...)...)
	// The kernel kills the agent when this process dies, even by KILL. Pdeathsig fires when the thread that started the agent exits.
	runtime.LockOSThread()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	stdin, stdout, err := startBetween(cmd)
	if err != nil {
		say("acp: command %q: %v", clip(command[0]), err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return exitNotFound
		}
		return exitCannotRun
	}
	if err := acp.Run(o, os.Stdin, stdin, stdout, os.Stdout); err != nil {
		giveUp(cmd)
		say("acp: %v", err) // after the agent's own stderr output: agboxd reports the last line as the reason
		return exitNoSession
	}
	_ = cmd.Wait() // ProcessState has the result
	return exitCode(unix.WaitStatus(cmd.ProcessState.Sys().(syscall.WaitStatus)))
}

// startBetween starts cmd and returns its standard input and output.
func startBetween(cmd *exec.Cmd) (stdin io.WriteCloser, stdout io.Reader, err error) {
	if stdin, err = cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	if stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, err
	}
	return stdin, stdout, cmd.Start()
}

// giveUp sends TERM to an agent that opened no session, KILL after acpGrace, and waits for its exit.
func giveUp(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(unix.SIGTERM)
	kill := time.AfterFunc(acpGrace, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait()
}
