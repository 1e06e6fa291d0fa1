// Package audit checks a daemon's state - its database, its state directory and the engine's objects - against the
// numbered invariants of docs/crash-contract.md. It shares no code with the controller, the store, its log or the
// journal: it has its own readers of bbolt, JSON, frames and the engine's HTTP API, written from the formats, since shared code
// would hide a shared error. Only the messages of apis, which are the format, are shared.
//
// The auditor never writes. It reads a copy of the database: from the daemon's Backup call, or from the file of a stopped daemon.
// It probes the lock of an exec that has a journal with a shared flock for an instant, as the daemon itself does.
//
// Reading order: the database, then the engine, the packet filter, and the files. Changes that the daemon makes meanwhile show as differences. So a
// difference between the records and the world is a violation only when it persists, while the record of its object stays the
// same, for Options.Patience; until then it is a warning. A state that a correct daemon never shows, such as a gap in a sequence,
// is a violation at once.
//
//	I1   the database is complete: its pages are consistent, every record decodes and has its companions
//	I2   every ID on record is reserved
//	I3   a name is held by one live sandbox (or agent) that carries it
//	I4   a sandbox's events are numbered from 1 without a gap, but for exec events dropped by the bound and for a rebuilt record
//	I5   every change of state is legal, and intent, state and deletion agree
//	I6   an exec has one EXEC_STARTED, then at most one end, and its record matches the events
//	I7   an exec's end is the one in its journal: exit code, times, kind
//	I8   an exec without an end lives, or starts soon
//	I9   no journal and no lock without a record
//	I10  logs are as long as the journal says, and dropped bytes are counted
//	I11  logs are byte for byte the programs' output (package stream)
//	I12  by the programs' own ledger: started at most once, ended with the recorded exit code, always recorded
//	I13  replaying the log of the database gives the database
//	I14  READY: one primary runs, attached to the network; services reported READY run
//	I15  STOPPED: nothing runs, the primary exists
//	I16  PAUSED: frozen, or stopped when demoted
//	I17  FAILED: nothing runs; by a create: nothing is left
//	I18  DELETED: no container, network, directory or file is left
//	I19  nothing belongs to an unknown sandbox, and nothing is outside its sandbox's spec
//	I20  at most one process of an agent lives: the newest, in its sandbox
//	I21  an agent's offsets lie within its files
//	I22  an agent's transitions are legal and without a gap; the numbers of events and prompts match the counters
//	I23  the containers of at most one sandbox mount a named volume, and it has the volume's name
//	I24  the packet filter has rules of a running sandbox's policy, and none of one without or of a deleted one
//	I25  a volume that is a part of a read-only root belongs to a live sandbox with one, and to no other
//
// A new kind of object adds a list to world, a check beside inDocker, and a number.
package audit
