// Package store keeps agboxd's intent and history in one bbolt file, ids.db. It is the only package that imports bbolt: callers receive
// copies of messages and IDs.
//
// Invariants, each held by a test:
//
//   - An accept is one transaction: it writes the reserved ID, config, desired state and event together.
//   - One writer goroutine commits all queued requests in one transaction. The changes staged by a request are applied only if it
//     returned nil, so a refused request does not affect the others.
//   - After a commit the writer appends it to the log, publishes the index, calls the OnCommit hooks, notifies the watchers, and answers
//     the callers, in this order. So everyone notified of a change can read it, and no reader sees data that a crash could revert.
//   - Event sequences of a sandbox start at 1 and have no gaps. With a history limit, the oldest exec events may be dropped; no event is
//     renumbered, and none is missing after the recorded mark. A rebuilt record has no events before its SANDBOX_REHYDRATED.
//   - One function changes the state of an agent, by the table of package agentstate, in one transaction with all effects. An agent's
//     output is ingested exactly once: its events and the new position are one transaction.
//   - While the daemon drains, no agent is started, no prompt is delivered, and no sandbox is stopped for being idle.
//   - A rebuilt record never changes an existing one.
//   - A spec changes only together with the generation, so the store refuses the report of a pass that read the old spec.
//   - IDs of sandboxes, execs and agents are reserved forever; a purge keeps them.
//   - A record that does not decode is quarantined: it is reported, never deleted, and does not keep the store from opening.
//   - Memory holds live sandboxes, active execs and agents, not history.
//
// Errors are containerd/errdefs classes. ErrUnavailable: nothing was written and a retry may succeed (disk full, lock held), or the store
// is closed or stopped by a fatal error. ErrDataLoss: bytes do not decode. ErrAborted: a newer intent was recorded. If a client needs more
// than the class, the error is a *Refusal.
package store
