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
	// acpThreads is what the client's goroutines need at most: reads of the inbox and of the agent, the write to it, the wait
	// for its end, and signals.
	acpThreads = 6
	// acpGrace is how long an agent that gives no session has to end.
	acpGrace = 5 * time.Second
	// exitNoSession says that the client gave up.
	exitNoSession = 1
)

// runACP is the command of an exec whose agent speaks ACP: between the inbox, which is our standard input, and the agent,
// whose standard output becomes ours. It returns the agent's exit code, 128 + signal if one ended it, 126 or 127 if it could
// not be started, and 1 if it gave no session.
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
	// A TERM is sent to the agent as well: we go on until it has ended. What is caught is not inherited.
	signal.Notify(make(chan os.Signal, 1), append([]os.Signal{unix.SIGTERM, unix.SIGINT}, sunk...)...)
	// The agent ends with us, also if we are killed. For the kernel "us" is the thread that started it.
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
		say("acp: %v", err) // behind what the agent says to that: the last words are what people are told
		return exitNoSession
	}
	_ = cmd.Wait() // its state tells
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return cmd.ProcessState.ExitCode()
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

// giveUp ends an agent of which nothing can come.
func giveUp(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(unix.SIGTERM)
	kill := time.AfterFunc(acpGrace, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait()
}
