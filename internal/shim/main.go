// Package shim is what runs inside each sandbox's primary container: PID 1 and its requests, the supervisors of execs and of
// the main process, and the words for programs of an agent. cmd/agbox-shim is its main.
//
// Each process of ours is one loop around poll(2) on the main goroutine, but for the ACP client: that goroutine alone forks and
// waits, so no two waiters compete for a child. None needs a new thread after its start: at the pids limit the kernel would
// refuse it, and the Go runtime would die of that.
package shim

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/agbox/agbox/internal/agent/dialect/acp"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// places are the mounted directories; tests have others.
type places struct {
	ctl, logs, out string
}

// Main runs the verb in args, the command line without the program's name; cmd/agbox-shim describes the verbs. It returns the exit
// code: for init and main that of the main process, for init without one 0 after an orderly stop; for exec settled or tryAgain;
// for a word 0 or 1; 2 for a usage error.
func Main(args []string) int {
	return run(args, places{ctl: execjournal.ContainerCtl, logs: execjournal.ContainerLogs, out: execjournal.ContainerOut})
}

// run is Main with directories of the caller's.
func run(args []string, at places) int {
	// One thread at a time runs Go code, others sit in poll(2) or wait for a signal. More would only cost pids.
	runtime.GOMAXPROCS(1)
	if isWord(args) {
		return runWord(at, args, os.Stdin)
	}
	if len(args) == 2 && args[0] == execjournal.ProofVerb {
		return runProbe(args[1])
	}
	if len(args) > 0 && args[0] == acp.Verb {
		return runACP(args[1:])
	}
	// Garbage counts against the sandbox's limit: at 100 % each process of ours grows to 4 MiB before its first collection, now to 1 MiB.
	debug.SetGCPercent(25)
	o, ok := parse(args)
	switch {
	case ok && o.verb == "init":
		return runInit(at, o)
	case ok && o.verb == "main":
		return runMain(at, o)
	case ok && o.verb == "exec":
		return runExec(at, o)
	case ok && o.verb == reserveVerb:
		return runReserve(o.members)
	}
	say("usage: agbox-shim init [--gated] [--probe] [--hardened] [--default-user=USER] [--user=USER] [--dir=/PATH] [--log-limit=BYTES] [-- PROGRAM [ARGS]]")
	return 2
}
