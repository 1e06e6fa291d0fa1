// Package store keeps agboxd's intent and history in one bbolt file, ids.db. It is the only package that sees bbolt:
// callers see messages and IDs, and everything they get is a copy.
//
// Invariants, each held by a test:
//
//   - An accept is one transaction: reserved ID, config, desired state and event are all there or none is.
//   - One writer goroutine commits whatever is queued in one transaction. A request stages its changes and they are
//     applied only if it returned nil, so a refusal spoils nobody else's write.
//   - After a commit it is appended to the log, then the index is published, then OnCommit hooks and watchers are called, then
//     callers are answered. So whoever is told, reads it; and nobody reads what a crash could take back.
//   - Event sequences of a sandbox start at 1 and have no gaps. Where a history limit is set, the oldest events of execs
//     may be gone, none is renumbered, and nothing is missing after the mark that is kept of it. Of a record that was
//     rebuilt, everything before its SANDBOX_REHYDRATED is gone.
//   - One function changes the state of an agent, by the table of package agentstate, in one transaction with all that
//     follows. What an agent said is taken in exactly once: its events and the position behind it are one transaction.
//   - While the daemon drains, no agent is started, none is given a prompt, and no sandbox is stopped for being idle.
//   - A record that is there is never changed by one that was rebuilt.
//   - A spec changes only together with the generation, so no report of a pass that saw the old one is taken.
//   - IDs of sandboxes, execs and agents are reserved forever; a purge keeps them.
//   - A record that does not decode is quarantined: reported, never deleted, never a reason not to open.
//   - Memory holds live sandboxes, active execs and agents, not history.
//
// Errors are containerd/errdefs classes. ErrUnavailable: nothing was written and a retry may work (disk full, lock
// held), or the store is closed or past a fatal error. ErrDataLoss: bytes do not decode. ErrAborted: the intent moved
// on. Where a client needs more than the class, the error is a *Refusal.
package store
