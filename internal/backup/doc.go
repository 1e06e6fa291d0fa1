// Package backup holds the form of a backup file: a copy of the daemon's database, with or without the logs of execs. It
// knows nothing of what the database says. A backup file is a tar archive with these regular files, in this order:
//
//	agbox-backup.json         format, schema version of the database, time, UUID of the store, whether there are logs
//	ids.db                    the database, a bbolt file
//	logs/<sandbox_id>/<file>  with logs: any number
//	SHA-256                   of every byte before this entry's header, in hex; then the end of the archive
//
// Invariants:
//
//   - A file that Open accepts is whole: no bit of it differs from what was written.
//   - A file is written from the first byte to the last, so that it can be streamed; nothing in it depends on what follows.
package backup
