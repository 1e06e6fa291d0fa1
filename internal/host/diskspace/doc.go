// Package diskspace watches the file systems that the daemon and its sandboxes write to. It decides, from their free
// space, whether new work is accepted, and holds a ballast: files that the daemon removes one by one when commits find no
// room. So stops, deletes and the ends of execs can be recorded on a full disk, and a delete frees space.
//
// The decision is pure (Decide). The content of the files does not matter: a crash may leave each one missing, partial or
// complete, and the next start completes them.
package diskspace
