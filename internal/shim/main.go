// Package shim implements agbox-shim, the program that runs inside each sandbox's primary container: PID 1 and its request handling, the
// supervisors of execs and of the main process, and the verbs that an agent's programs call (checkpoint, done, status). cmd/agbox-shim is
// its main package.
//
// Each shim process runs one loop around poll(2) on the main goroutine, except the ACP client. Only that goroutine forks and waits, so no
// two waiters compete for a child. No shim process creates a thread after its start: at the pids limit the kernel would refuse the thread,
// and the Go runtime would crash.
package shim

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/agent/dialect/acp"
	"github.com/agbox/agbox/internal/attack"
	"github.com/agbox/agbox/internal/attack/try"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// Places holds the paths of the mounted directories.
type Places struct{ Ctl, Logs, Out string }

// Main runs the verb in args, the command line without the program's name; cmd/agbox-shim describes the verbs. It returns the exit code:
// init and main return that of the main process, init without a main process returns 0 after an orderly stop, exec returns settled or
// tryAgain, the verbs of an agent's programs return 0 or 1, and a usage error returns 2.
func Main(args []string) int {
	return Run(args, Places{Ctl: execjournal.ContainerCtl, Logs: execjournal.ContainerLogs, Out: execjournal.ContainerOut})
}

// Run is Main for other directories, for tests without a container.
func Run(args []string, at Places) int {
	// The image may have symlinks at the places of the mounts. The runtime mounts on their targets, so execjournal.OpenDir must follow them.
	at.Logs, at.Out = at.Logs+"/.", at.Out+"/."
	// One thread at a time runs Go code; the others wait in poll(2) or for a signal. More threads would only use up the pids limit.
	runtime.GOMAXPROCS(1)
	if isWord(args) {
		return runWord(at, args, os.Stdin)
	}
	if len(args) == 2 && args[0] == execjournal.ProofVerb {
		return runProbe(args[1])
	}
	if len(args) == 2 && args[0] == execjournal.HoldVerb {
		return runHold(args[1])
	}
	if len(args) > 0 && args[0] == acp.Verb {
		return runACP(args[1:])
	}
	if len(args) > 0 && args[0] == attack.Verb {
		if err := try.Run(args[1:], os.Stdout); err != nil {
			say("attack: %v", err)
			return 1
		}
		return 0
	}
	// Garbage counts against the sandbox's memory limit. With the default of 100 % each shim process grows to 4 MiB before its first
	// collection; with 25 % it grows to 1 MiB.
	debug.SetGCPercent(25)
	if len(args) == 1 && args[0] == reserveVerb {
		return runReserve()
	}
	o, ok := parse(args)
	switch {
	case ok && o.verb == "init":
		return runInit(at, o)
	case ok && o.verb == "main":
		return runMain(at, o)
	case ok && o.verb == execVerb:
		return runExec(at, o)
	case ok && o.verb == serveVerb:
		return runServe(o)
	}
	say("usage: agbox-shim init [--gated] [--probe] [--report] [--hardened] [--cap=NUMBER]... [--new-privileges] [--host-user=UID:GID] [--default-user=USER] [--user=USER] [--own=/PATH]... [--part=/PATH]... [--dir=/PATH] [--entry=ARG]... [--entry-must] [--entry-new] [--log-limit=BYTES] [-- PROGRAM [ARGS]]")
	return 2
}

// sayings is the number of lines that this process may still write to the container's log.
var sayings = 200

// say writes one line to the container's log, or drops it: the engine reads the pipe, and an engine that hangs must not block PID 1. Only
// the main goroutine may call it.
func say(format string, a ...any) {
	if sayings == 0 {
		return
	}
	sayings--
	// POLLOUT on a pipe guarantees space for PIPE_BUF bytes, and a line is shorter.
	fds := []unix.PollFd{{Fd: 2, Events: unix.POLLOUT}}
	if n, err := unix.Poll(fds, 0); err != nil || n != 1 || fds[0].Revents&unix.POLLOUT == 0 {
		return
	}
	_, _ = unix.Write(2, []byte("agbox-shim: "+execjournal.Sentence(fmt.Sprintf(format, a...))+"\n"))
}
