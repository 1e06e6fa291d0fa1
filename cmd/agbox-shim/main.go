// Command agbox-shim is PID 1 of every sandbox's primary container and the only way anything of ours is started in it.
//
//	agbox-shim init [OPTIONS] [-- PROGRAM [ARGS]]    PID 1: starts, cancels and reaps; ends on TERM, or with the main process
//	agbox-shim exec [OPTIONS] EXEC_ID                one exec's supervisor, started by init, which hands it the lock
//	agbox-shim main [OPTIONS] -- PROGRAM [ARGS]      the main process's supervisor, started by init
//	agbox-shim acp [OPTIONS] -- PROGRAM [ARGS]       the command of an agent that speaks ACP: its client (see internal/agent/dialect/acp)
//	agbox-shim checkpoint TEXT|-                     by a program of an agent: what a later incarnation is to know
//	agbox-shim status TEXT|-                         by a program of an agent: what it is doing
//	agbox-shim done [OUTCOME]                        by a program of an agent: the turn has ended
//	agbox-shim probe WORD                            the command that proves a runtime: prints WORD and waits for TERM
//
//	--gated                of init: nothing is started before the daemon's release (see internal/host/execjournal)
//	--hardened             commands start without any capability, also as root, and gain none
//	--probe                of init: the request of execid.Runtime is handled before the release
//	--run=TEXT             of exec and main: what their journals say of the run of the container
//	--user=USER            whom commands run as: "name", "uid", "name:group" or "uid:gid"; a request may name another
//	--default-user=USER    whom without --user, where the image has no user agbox
//	--dir=PATH             where the main process starts, absolute; default: the container's working directory
//	--log-limit=BYTES      what each of the two logs of the main process holds, all its starts together; 0, the default: no limit
//
// It is static and needs nothing of the image. The files it reads and writes are described in internal/host/execjournal.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"

	"github.com/agbox/agbox/internal/shim"
)

func main() { os.Exit(shim.Main(os.Args[1:])) }
