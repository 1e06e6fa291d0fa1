// Package backup holds the form of a backup file: a copy of the daemon's database, with or without the logs of execs. It
// knows nothing of what the database says. docs/backup.md has the form in words.
//
//	offset  bytes
//	     0  16      "agbox backup\r\n\x1a\n"
//	    16  4       format version, 1
//	    20  4       flags; 1: there is a log part
//	    24  8       schema version of the database
//	    32  8       when it was made, Unix nanoseconds
//	    40  8       size of the database
//	    48  36      UUID of the store, as text
//	    84  4       zero
//	    88  size    the database, a bbolt file
//	        ...     the log part: a tar archive with <sandbox_id>/<file> as names, regular files only
//	        32      SHA-256 of everything before
//
// Integers are big-endian. Invariants:
//
//   - A file that Open accepts is whole: no bit of it differs from what was written.
//   - A file is written from the first byte to the last, so that it can be streamed; nothing in it depends on what follows.
package backup
