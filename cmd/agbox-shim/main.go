// Command agbox-shim is PID 1 of every sandbox's primary container. agboxd starts all its processes in a container through it.
//
//	agbox-shim init [OPTIONS] [-- PROGRAM [ARGS]]    PID 1: starts, cancels and reaps; exits on TERM or INT, or with the main process
//	agbox-shim exec [OPTIONS] EXEC_ID                supervisor of one exec; init starts it with the exec's lock
//	agbox-shim main [OPTIONS] -- PROGRAM [ARGS]      supervisor of the main process; init starts it
//	agbox-shim acp [OPTIONS] -- PROGRAM [ARGS]       command of an agent that speaks ACP: its client (see internal/agent/dialect/acp)
//	agbox-shim checkpoint TEXT|-                     called by a program of an agent: stores a text for later incarnations
//	agbox-shim status TEXT|-                         called by a program of an agent: sets its status text
//	agbox-shim done [OUTCOME]                        called by a program of an agent: ends the turn
//	agbox-shim hold NAME                             arguments of the image's ENTRYPOINT: shows init that they were executed, then holds
//	agbox-shim probe WORD                            command that probes a runtime: prints WORD and waits for TERM
//	agbox-shim attack [KIND=ADDRESS...] [--flood=CHECK:LIMIT...]   the self-test of "agbox doctor --attack" (see internal/attack)
//	agbox-shim reserve                               memory reserve; init starts it
//
//	--gated                init: starts nothing before agboxd's release (see internal/host/execjournal)
//	--hardened             commands start without any capability, also as root, and gain none
//	--probe                init: handles the request of execid.Runtime before the release
//	--entry=ARG            init: an argument of the image's ENTRYPOINT, which runs first, as root; may be repeated
//	--entry-must           the ENTRYPOINT has to execute its arguments; without it, one that ends before is a warning
//	--entry-new            the ENTRYPOINT runs only if the image has no user agbox
//	--report               init and main: report each start of the container (see internal/host/execjournal.Start)
//	--warn=TEXT            main: the warning of the report
//	--run=TEXT             exec and main: ID of this run of the container, recorded in journals
//	--user=USER            user of commands: "name", "uid", "name:group" or "uid:gid"; a request may name another
//	--host-user=UID:GID    user of commands without --user if the image has no user agbox: init makes it, with these numbers
//	--default-user=USER    the same without --host-user, as older releases of agboxd create containers
//	--dir=PATH             absolute working directory of the main process; default: the container's working directory
//	--log-limit=BYTES      size limit of each of the main process's two logs, over all its starts; 0, the default: no limit
//
// The program is static and needs no files of the image. internal/host/execjournal describes the files it reads and writes.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"

	"github.com/agbox/agbox/internal/shim"
)

func main() { os.Exit(shim.Main(os.Args[1:])) }
