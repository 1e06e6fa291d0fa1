// Package txlog keeps a second copy of a database of buckets, keys and values: a snapshot of the whole database, followed by every later
// transaction. It does not interpret keys or values.
//
//	<dir>/                      0700
//	├──snapshot-<8 hex>         all buckets as of one transaction; complete once it has this name
//	├──snapshot-<8 hex>.tmp     being written
//	└──segment-<8 hex>          transactions; snapshot n is followed by the segments n, n+1, ...
//
// Each file (0600) is a sequence of frames. Integers in headers are big-endian, those in payloads are varints.
//
//	0   4 bytes   "AGL" and the kind
//	4   uint32    length of the payload, at most 256 MiB
//	8   uint32    CRC-32C of the 8 bytes before and of the payload
//
//	kind  where                 payload
//	P     starts a snapshot     version, lineage, transaction ID
//	D     in a snapshot         operations
//	Z     ends a snapshot       number of operations
//	S     starts a segment      version, lineage, ID of the transaction before its first one
//	T     in a segment          ID of the transaction before, own ID, operations
//	E     ends a segment        ID of the last transaction, boot ID. The next append overwrites it
//	C     ends a segment        as E; the log was synced and closed
//	N     ends a segment        as E; the next segment continues
//
// An operation is a byte (1 put, 2 delete, 3 make bucket, 4 drop bucket), the bucket's name, and, depending on the kind, key and value,
// each preceded by its length.
//
// Invariants:
//
//   - Append is called after the commit, so every transaction in the log is in the database. An append that returned has handed the
//     transaction to the kernel: it survives the death of the process. Sync makes it survive a power failure.
//   - Replay applies the snapshot and the transactions that follow it without a gap, in order. Each transaction names the one
//     before it, so Replay applies nothing after a gap, a damaged frame or a failed append.
//   - Replay reports a log as complete only if it ends with an end mark of this boot, or with a closed mark. So a log that was truncated
//     at any byte, or may have been by a power failure, is never reported as complete.
//   - A lineage identifies one database file. A rebuilt or restored file has another lineage, even if its transaction IDs are equal.
//   - Rotate creates a segment before the snapshot of the same number is written. Older files are removed after that snapshot is synced
//     and named, except the previous snapshot and its segments. So at each moment a snapshot and the segments after it exist, and if the
//     newest snapshot is damaged, the previous one restores the same database.
package txlog
