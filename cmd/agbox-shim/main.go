// Command agbox-shim is PID 1 of every sandbox's primary container and the only way anything of ours is started in it.
//
//	agbox-shim init [--default-user=USER]            PID 1: starts, cancels and reaps; ends on TERM
//	agbox-shim exec [--default-user=USER] EXEC_ID    one exec's supervisor, started by init with the locked file as fd 3
//
// It is static and needs nothing of the image. The files it reads and writes are described in internal/execjournal.
//
// Both processes are one loop around poll(2) on the main goroutine: that goroutine alone forks and waits, so no two
// waiters compete for a child. Neither needs a new thread after its start: at the pids limit the kernel would refuse it,
// and the Go runtime would die of that.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"
	"runtime"
	"strings"

	"github.com/agbox/agbox/internal/execjournal"
)

// places are the mounted directories; tests have others.
type places struct {
	ctl, logs string
}

func main() {
	os.Exit(run(os.Args[1:], places{ctl: execjournal.ContainerCtl, logs: execjournal.ContainerLogs}))
}

// run returns the exit code: for init 0 after an orderly stop; for exec one of the settled, tryAgain codes; 2 for a usage error.
func run(args []string, at places) int {
	// One thread at a time runs Go code, others sit in poll(2) or wait for a signal. More would only cost pids.
	runtime.GOMAXPROCS(1)
	verb, defaultUser, rest := parse(args)
	switch {
	case verb == "init" && len(rest) == 0:
		return runInit(at, defaultUser)
	case verb == "exec" && len(rest) == 1 && execjournal.ValidExecID(rest[0]):
		return runExec(at, defaultUser, rest[0])
	}
	say("usage: agbox-shim init [--default-user=USER]")
	return 2
}

func parse(args []string) (verb, defaultUser string, rest []string) {
	if len(args) == 0 {
		return "", "", nil
	}
	verb, rest = args[0], args[1:]
	if len(rest) > 0 {
		if u, ok := strings.CutPrefix(rest[0], "--default-user="); ok {
			return verb, u, rest[1:]
		}
	}
	return verb, "", rest
}
