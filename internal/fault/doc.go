// Package fault provides failpoints: named places around every store commit and every engine call at which a test kills the process,
// returns an error or waits. They exist only in builds with the tag "faults". In a release the functions of this package are empty, the
// compiler inlines them, and the process does not read AGBOX_FAULTS.
//
// A point is named KIND.OPERATION.WHEN: "engine.create_container.before", "store.Report.after". At the point after an engine call, the
// engine has answered and the caller has not received the answer. At the point after a commit, the records are on disk, and neither the
// caller nor a reader has observed them.
package fault

// The kinds of points.
const (
	Engine = "engine" // OPERATION is a name of dockerx.Ops
	Store  = "store"  // OPERATION is the exported method of store.Store that commits
	Log    = "log"    // OPERATION is append, sync, rotate, write_snapshot, name_snapshot or remove_older
	Disk   = "disk"   // OPERATION is make_ballast, fill_ballast (one piece) or release_ballast

	Rules   = "rules"   // OPERATION is add_sets, replace or remove_sets, of the packet filter rules of a sandbox
	Session = "session" // OPERATION is save or remove, of the copies of agents' sessions
	Builds  = "builds"  // OPERATION is one of package buildfiles, the files of template builds
)

// The moments of a point.
const (
	Before = "before"
	After  = "after"
)

// EnvDir is the environment variable that names the directory through which a test arms points of another process; see on.go.
const EnvDir = "AGBOX_FAULTS"
