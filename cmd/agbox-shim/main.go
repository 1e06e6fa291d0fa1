// Command agbox-shim is PID 1 of every sandbox's primary container and the only way anything of ours is started in it.
//
//	agbox-shim init [OPTIONS] [-- PROGRAM [ARGS]]    PID 1: starts, cancels and reaps; ends on TERM, or with the main process
//	agbox-shim exec [OPTIONS] EXEC_ID                one exec's supervisor, started by init, which hands it the lock
//	agbox-shim main [OPTIONS] -- PROGRAM [ARGS]      the main process's supervisor, started by init
//	agbox-shim acp [OPTIONS] -- PROGRAM [ARGS]       the command of an agent that speaks ACP: its client (see internal/dialect/acp)
//	agbox-shim checkpoint TEXT|-                     by a program of an agent: what a later incarnation is to know
//	agbox-shim status TEXT|-                         by a program of an agent: what it is doing
//	agbox-shim done [OUTCOME]                        by a program of an agent: the turn has ended
//	agbox-shim probe WORD                            the command that proves a runtime: prints WORD and waits for TERM
//
//	--gated                of init: nothing is started before the daemon's release (see internal/execjournal)
//	--hardened             commands start without any capability, also as root, and gain none
//	--probe                of init: the request of execjournal.ProofID is handled before the release
//	--run=TEXT             of exec and main: what their journals say of the run of the container
//	--user=USER            whom commands run as: "name", "uid", "name:group" or "uid:gid"; a request may name another
//	--default-user=USER    whom without --user, where the image has no user agbox
//	--dir=PATH             where the main process starts, absolute; default: the container's working directory
//	--log-limit=BYTES      what each of the two logs of the main process holds, all its starts together; 0, the default: no limit
//
// It is static and needs nothing of the image. The files it reads and writes are described in internal/execjournal.
//
// Each process of ours is one loop around poll(2) on the main goroutine, but for the ACP client: that goroutine alone forks and waits, so no two
// waiters compete for a child. None needs a new thread after its start: at the pids limit the kernel would refuse it,
// and the Go runtime would die of that.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/agbox/agbox/internal/dialect/acp"
	"github.com/agbox/agbox/internal/execjournal"
)

// places are the mounted directories; tests have others.
type places struct {
	ctl, logs, out string
}

func main() {
	at := places{ctl: execjournal.ContainerCtl, logs: execjournal.ContainerLogs, out: execjournal.ContainerOut}
	os.Exit(run(os.Args[1:], at))
}

// run returns the exit code: for init and main that of the main process, for init without one 0 after an orderly stop; for
// exec settled or tryAgain; for a word 0 or 1; 2 for a usage error.
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
	}
	say("usage: agbox-shim init [--gated] [--probe] [--hardened] [--default-user=USER] [--user=USER] [--dir=/PATH] [--log-limit=BYTES] [-- PROGRAM [ARGS]]")
	return 2
}
