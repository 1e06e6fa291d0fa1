// Package diskspace watches the file systems that the daemon and its sandboxes write to. It decides, from their free
// space, whether new work is accepted, and holds a ballast file whose blocks the daemon gets back when a commit finds no
// room: so stops, deletes and the ends of execs can be recorded on a full disk, and a delete frees space.
//
// The decision is pure (Decide). The ballast is a file without content of interest: it may be missing, cut or whole after
// a crash at any moment, and the next start completes it.
package diskspace
