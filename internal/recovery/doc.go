// Package recovery rebuilds the records of sandboxes when the database and its log are lost: from what the log still
// has of them, and from what the engine and the files of their execs show. docs/rehydration.md has the table of what is recovered and
// what is guessed.
//
// Gather looks, Plan decides and is pure, and the store's Adopt records. Nothing here changes anything: neither the engine
// nor a file is written to.
//
//   - The order of trust is the log's record, labels, inspection. What cannot be known gets a default that neither removes
//     anything nor runs what its user had stopped, and is told by name.
//   - Ours is a primary whose ctl mount lies in this daemon's data directory, whatever instance its labels name, and what
//     carries the same sandbox ID and instance as such a primary. Everything else is left alone.
//   - What a sandbox can write, which is its journals, decides about its own execs and about nothing else.
package recovery
