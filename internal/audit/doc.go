// Package audit checks what a daemon has left behind: its database, its state directory and the engine's objects, against the
// numbered invariants of docs/crash-contract.md. It shares no code with the controller, the store, its log or the
// journal: it has its own readers of bbolt, JSON, frames and the engine's HTTP API, written from the formats. Neither side would find an
// error that both shared. Only the messages of apis, which are the format, are shared.
//
// The auditor never writes. It reads a copy of the database: from the daemon's Backup call, or from the file of a daemon that does
// not run. A lock of an exec that has a journal is probed with a shared flock for an instant, as the daemon itself does.
//
// Reading order: the database, then the engine, then the files. What a daemon did meanwhile shows as a difference. So a difference
// between records and the world counts as a violation only when it persists, while the record of its object stays the same, for
// Options.Patience; until then it is a warning. What no moment in the life of a correct daemon shows, such as a gap in a sequence, is
// a violation at once.
//
//	I1   the database is whole: its pages fit together, every record decodes and has its companions
//	I2   every ID on record is reserved
//	I3   a name is held by one live sandbox (or agent) that carries it
//	I4   a sandbox's events are numbered from 1 without a gap, but for exec events dropped by the bound and for a rebuilt record
//	I5   every change of state is legal, and intent, state and deletion agree
//	I6   an exec has one EXEC_STARTED, then at most one end, and its record says what the events say
//	I7   an exec's end is the one in its journal: exit code, times, kind
//	I8   an exec without an end lives, or starts soon
//	I9   no journal and no lock without a record
//	I10  logs are as long as the journal says, and dropped bytes are counted
//	I11  logs are byte for byte what the programs wrote (package stream)
//	I12  by the programs' own ledger: started at most once, ended with the recorded exit code, never forgotten
//	I13  the log of the database, replayed, is the database
//	I14  READY: one primary runs, attached to the network; services reported READY run
//	I15  STOPPED: nothing runs, the primary is there
//	I16  PAUSED: frozen, or stopped when demoted
//	I17  FAILED: nothing runs; by a create: nothing is left
//	I18  DELETED: no container, network, directory or file is left
//	I19  nothing belongs to an unknown sandbox, and nothing is outside its sandbox's spec
//	I20  at most one process of an agent lives: the newest, in its sandbox
//	I21  an agent's offsets lie within its files
//	I22  an agent's transitions are legal and without a gap; its events and prompts are as counted
//
// A new kind of object, such as volumes, adds a list to world, a check beside inDocker, and a number.
package audit
