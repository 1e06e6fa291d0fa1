// Package execjournal holds the files through which agboxd and agbox-shim speak about execs, and the daemon's side of
// them. Neither side ever calls the other: both look at files, and inotify only says when to look again, so nothing is
// lost while one of them is away.
//
// The mounts of a container are fixed when it is made, so names, places and meanings below never change. A file may
// gain JSON fields that old readers ignore; its version rises only when an old reader must not act on it.
//
//	host                                  container                    written by
//	<outputRoot>/<sandbox_id>/            /var/log/agents-sandbox/     (rw)
//	├──<exec_id>.lock                                                  shim, flock(2) held while the exec is alive; root's alone
//	├──<exec_id>.journal                                               shim; daemon only to close an exec that has none, empty on a full disk
//	├──<exec_id>.stdout.log, .stderr.log                               shim
//	├──_main.stdout.log, _main.stderr.log                              shim; of the container's command, all its starts
//	├──<exec_id>.lost                                                  shim; empty, a bell: the lock was given up without an end
//	└──.<exec_id>.*.tmp                                                either, on the way to one of the above
//	<runRoot>/<16 hex>/ctl/               /run/agbox/ctl/              (ro)
//	└──exec/
//	   ├──<exec_id>.json                                               daemon: Request
//	   ├──<exec_id>.cancel                                             daemon: Cancel, on a full disk a link to the Request
//	   ├──full                                                         daemon; empty: the sandbox's quota is used up
//	   ├──release                                                      daemon; empty: PID 1 may begin
//	   ├──private                                                      daemon: the process of a container whose locks the host does not see
//	   └──.<exec_id>.*.tmp                                             daemon
//	<runRoot>/<16 hex>/out/               /run/agbox/out/              (rw) outboxes of agents; root's alone
//
// Invariants:
//
//   - A command starts only after its supervisor has linked the journal, and a journal is linked once: who comes second
//     leaves. So an exec runs at most once, and an exec that the daemon closed never runs.
//   - A journal appears complete and durable (temporary file, fsync, link or rename, fsync of the directory).
//   - The end is in the journal before the lock is free. So "started, lock free, still no end" means that the exec's
//     supervisor was killed; the lock is given up only when nothing of its process tree is left.
//   - IDs of clients begin with a letter or a digit, those of internal execs (hooks: "_hook.0") with "_". The latter are
//     handled like any other.
//   - Where the host does not see the container's locks, an exec that has started lives while the container's process does and there
//     is no bell. PID 1 rings it when nothing of the tree is left, and never for an exec that has no journal.
//   - A lock file is locked before it is linked to its name, and its owner alone may open it: no command is there first.
//     Shims of the first releases made it under its name, open to readers.
//   - Locks and journals have PrivateMode, logs LogMode, and all belong to the owner of the log directory (see Entrust).
//   - The daemon takes the lock (shared, for an instant) only when a started journal exists, so a look never makes the
//     shim's own attempt fail.
//
// The log directory belongs to the container as much as to us. What is read there is hostile: regular files only, bounded,
// checked. A forged journal lies about its own sandbox's execs and about nothing else.
package execjournal
