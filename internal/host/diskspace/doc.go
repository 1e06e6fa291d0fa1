// Package diskspace watches the file systems that the daemon and its sandboxes write to. It decides, from their free
// space, whether new work is accepted, and holds a ballast: files whose blocks the daemon gets back, one after another, when
// commits find no room. So stops, deletes and the ends of execs can be recorded on a full disk, and a delete frees space.
//
// The decision is pure (Decide). The files have no content of interest: each may be missing, cut or whole after
// a crash at any moment, and the next start completes them.
package diskspace
