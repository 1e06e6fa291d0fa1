// Package recordfile keeps a copy of the store's records in files of their own, one directory per sandbox, from which
// records are rebuilt when the database is lost. The database is the truth as long as there is one.
//
//	<runRoot>/<16 hex>/          made by us at the accept of a create, or by execjournal; 0700, not mounted anywhere
//	├──record                    frames of agbox.store.v1.SandboxRecord; the last one is the record
//	├──execs                     frames of agbox.store.v1.ExecRecord; of each exec ID the last one counts
//	└──.record.tmp, .execs.tmp   on the way to one of the above
//
// A frame is a header of 16 bytes and a payload, which is the message. Integers are big-endian.
//
//	0   4 bytes   "AGBS" for a sandbox, "AGBE" for an exec
//	4   uint32    version, now 1. The header is the same in all versions
//	8   uint32    length of the payload, at most 16 MiB
//	12  uint32    CRC-32C of the 12 bytes before and of the payload
//
// Behind the last frame is the end mark: a header "AGBZ", version 1, without a payload. Each append overwrites it with its frame and
// writes a new mark behind that, so a file that was cut anywhere, also between two frames, has none. A file in which a write failed
// has none either, until one succeeds: its last frame is not the newest.
//
// Both files are only appended to, so whatever a crash tears is behind the last good frame. An append costs some five
// microseconds; a new file in the place of the old one, which was tried, costs thirty times that on ext4, and without an
// fsync a power failure may leave neither of the two. A file that has grown far beyond its current frames is
// rewritten, synced and then renamed, in the background.
//
// Invariants:
//
//   - A method of Dir that returns has handed the change to the kernel, so it survives the end of our process. A power
//     failure may take the last half second: Run syncs in the background, never a caller.
//   - A record is never wrong: it is the newest, or an earlier one if the newest is torn, and the reader reports that. The reader also
//     reports a record that is older than its execs. One loss is not visible: a power failure may leave a whole file of half a second before.
//   - A change that could not be written is kept and retried, until a newer one replaces it.
//   - Once Gone, a sandbox has no record file. One that is being deleted gets no new directory, so that none comes back
//     after execjournal has removed it.
package recordfile
