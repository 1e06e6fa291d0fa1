// Package txlog keeps a second copy of a database of buckets, keys and values: a snapshot of all of it, and behind the snapshot
// every committed transaction. It knows nothing of the content.
//
//	<dir>/                      0700
//	├──snapshot-<8 hex>         all buckets as of one transaction; whole when it has its name
//	├──snapshot-<8 hex>.tmp     one that is being written
//	└──segment-<8 hex>          transactions; snapshot n is followed by the segments n, n+1, ...
//
// Each file (0600) is a sequence of frames. Integers in headers are big-endian, those in payloads are varints.
//
//	0   4 bytes   "AGL" and the kind
//	4   uint32    length of the payload, at most 256 MiB
//	8   uint32    CRC-32C of the 8 bytes before and of the payload
//
//	kind  where                 payload
//	P     begins a snapshot     version, lineage, transaction ID
//	D     in a snapshot         operations
//	Z     ends a snapshot       number of operations
//	S     begins a segment      version, lineage, ID of the transaction before its first one
//	T     in a segment          ID of the transaction before, own ID, operations
//	E     ends a segment        ID of the last transaction, boot ID. The next append overwrites it
//	C     the same              and the log was synced and closed
//	N     the same              and the next segment continues
//
// An operation is a byte (1 put, 2 delete, 3 make bucket, 4 drop bucket), the bucket's name, and key and value where it has
// them, each with its length before it.
//
// Invariants:
//
//   - Append is called after the commit, so no transaction is in the log that is not in the database. An append that returned has
//     handed the transaction to the kernel: it survives the death of the process. Sync makes it survive a power failure.
//   - Replay applies the snapshot and the transactions that follow it without a gap, in order. Each transaction names the one
//     before it, so nothing is applied behind a hole, a damaged frame or a failed append.
//   - Replay reports a log as complete only if it ends with an end mark of this boot, or with one that says it was closed. So a
//     log that was cut at any byte, or that a power failure may have cut, is never taken for complete.
//   - A lineage names one database file. A file that was rebuilt or restored has another one, though its transaction IDs may be equal.
//   - A new segment exists before the snapshot that it follows is begun, and older files are removed after that snapshot
//     is synced and named, but for the snapshot before it and its segments. So at each moment a snapshot and the segments behind it are
//     there, and if the newest snapshot is damaged, the one before makes the same database.
package txlog
