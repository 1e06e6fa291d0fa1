// Package backup defines the format of backup files: a copy of agboxd's database, with or without the logs of execs. It does not interpret
// the database. A backup file is a tar archive with these regular files, in this order:
//
//	agbox-backup.json         format, schema version of the database, time, UUID of the store, whether there are logs
//	ids.db                    the database, a bbolt file
//	logs/<sandbox_id>/<file>  with logs: any number
//	SHA-256                   hex checksum of every byte before this entry's header; then the end of the archive
//
// Invariants:
//
//   - A file that Open accepts is complete and unchanged, bit for bit.
//   - A file is written from the first byte to the last, so it can be streamed; no part depends on a later one.
package backup
