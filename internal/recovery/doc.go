// Package recovery rebuilds the records of sandboxes when the database and its log are lost: from the records that the log
// still has, from the engine's objects, and from the files of execs. docs/rehydration.md has the table of recovered and
// guessed fields.
//
// Gather reads, Plan decides and is pure, and the store's RecordRebuilt commits. This package changes neither the engine nor a file.
//
//   - Sources are trusted in the order log, labels, inspection. An unknown field gets a default that neither removes
//     anything nor starts what the user had stopped, and is listed in Defaulted.
//   - A primary belongs to this daemon if its ctl mount is in this daemon's data directory, for any instance in its labels; so
//     do objects with the same sandbox ID and instance as such a primary. All other objects are left alone.
//   - Journals, which a sandbox can write, affect only its own execs.
package recovery
