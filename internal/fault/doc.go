// Package fault provides failpoints: named places around every store commit and every engine call at which a test kills the
// process, returns an error or waits. They exist only in builds with the tag "faults"; in a release every function of this
// package is an empty one that the compiler inlines away, and AGBOX_FAULTS is not read.
//
// A point is named KIND.OPERATION.WHEN: "engine.create_container.before", "store.Report.after". After an engine call the
// engine has answered and the caller has not seen the answer; after a commit the records are on disk, and neither its caller nor a
// reader has seen them.
package fault

// The kinds of points.
const (
	Engine = "engine" // OPERATION is a name of dockerx.Ops
	Store  = "store"  // OPERATION is the exported method of store.Store whose commit it is
	Log    = "log"    // OPERATION is append, sync, rotate, write_snapshot, name_snapshot or remove_older
	Disk   = "disk"   // OPERATION is make_ballast, fill_ballast (one piece of it) or release_ballast
)

// The moments of a point.
const (
	Before = "before"
	After  = "after"
)

// EnvDir is the environment variable that names the directory through which a test arms a process of another's; see the
// build with the tag.
const EnvDir = "AGBOX_FAULTS"
