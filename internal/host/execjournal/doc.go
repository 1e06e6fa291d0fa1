// Package execjournal defines the files by which agboxd and agbox-shim exchange requests and results of execs, and implements
// the daemon's access to them. Neither process calls the other: both read files, and inotify only triggers the next read, so
// nothing is lost while one of them is down.
//
// The mounts of a container are fixed when it is created, so names, places and meanings below never change. A file may
// gain JSON fields that old readers ignore; its version increases only when an old reader must not act on it.
//
//	host                                  container                    written by
//	<outputRoot>/<sandbox_id>/            /var/log/agents-sandbox/     (rw)
//	├──<exec_id>.lock                                                  shim, flock(2) held while the exec is alive; accessible by root only
//	├──<exec_id>.journal                                               shim; daemon only to close an exec without a journal, empty on a full disk
//	├──<exec_id>.stdout.log, .stderr.log                               shim
//	├──_main.stdout.log, _main.stderr.log                              shim; of the container's main process, over all its starts
//	├──_main.stdout.times, _main.stderr.times                          shim; when it read their lines: LineTime. A log may have none
//	├──entrypoint                                                      shim, once: whether the image's ENTRYPOINT runs, if PID 1 decides that
//	├──started                                                         shim, once per run: Start, empty for an ordinary one
//	├──<exec_id>.lost                                                  shim; empty, a marker: the lock was released without a recorded end
//	└──.<exec_id>.*.tmp                                                either, renamed or linked to one of the above
//	<runRoot>/<16 hex>/ctl/               /run/agbox/ctl/              (ro)
//	└──exec/
//	   ├──<exec_id>.json                                               daemon: Request
//	   ├──<exec_id>.cancel                                             daemon: Cancel, on a full disk a link to the Request
//	   ├──full                                                         daemon; empty: the sandbox's quota is exhausted
//	   ├──begun                                                        daemon; empty: PID 1 was started at least once, or is about to be
//	   ├──release                                                      daemon; a link, its text the host's boot ID: PID 1 may start the main process and execs
//	   ├──<name>.secret                                                daemon: Secret; the daemon's user only
//	   ├──private                                                      daemon: the process of a container whose locks are not visible to the host
//	   └──.<exec_id>.*.tmp                                             daemon
//	<runRoot>/<16 hex>/services/<16 hex>/ /run/secrets/                (ro) daemon: values of the secrets of a service; in its container
//	<runRoot>/<16 hex>/out/               /run/agbox/out/              (rw)
//	├──agents/                                                         outboxes of agents; accessible by root only
//	└──secrets/
//	   ├──<name>                                                       shim: the value; only the user of commands may read it
//	   ├──.<name>.at                                                   shim: a link whose text is the target that links to the value
//	   └──.problems                                                    shim: what could not be delivered, one sentence a line
//
// Invariants:
//
//   - A command starts only after its supervisor has linked the journal, and link(2) succeeds once; a second supervisor
//     exits. So an exec runs at most once, and an exec that the daemon closed never runs.
//   - A journal appears complete (temporary file, link or rename). It is on disk before the command starts, unless the daemon's record of the
//     exec has the present boot of the host, see Request.BootID: then no later boot starts it.
//   - The end is recorded in the journal before the lock is released. So "started, lock free, still no end" means that the
//     exec's supervisor was killed; the lock is released only when no process of its tree is left.
//   - Internal execs, such as hooks, are handled like any other; package execid has their IDs.
//   - Where locks in the container are not visible to the host, a started exec counts as alive while the container's process lives
//     and the .lost marker is absent. PID 1 creates the marker when no process of the tree is left, and never for an exec
//     without a journal.
//   - A lock file is locked before it is linked to its name, and only its owner may open it, so no command can lock it first.
//   - Locks and journals have PrivateMode, logs LogMode or PrivateMode, and all belong to the owner of the log directory (see Entrust).
//   - The daemon takes the lock (shared, for an instant) only when a started journal exists, so that its probe never makes the
//     shim's own attempt fail.
//
// Processes in the container can write to the log directory. The daemon treats its content as hostile: it reads only regular
// files, with bounds, and validates them. A forged journal affects only its own sandbox's execs.
package execjournal
