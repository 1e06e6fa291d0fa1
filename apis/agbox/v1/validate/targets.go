package validate

// target is a path in the container where something from the host goes.
type target struct {
	path string
	// owner names what goes there: "mounts[0]".
	owner string
	// field is what an error is about.
	field string
	// copied: it is on the container's own file system, and not a mount.
	copied bool
	// file: nothing can lie below it.
	file bool
}

// targets are the mounts first and then the copies, so that in a clash of the two it is the copy that is reported.
type targets []target

// check reports each target that clashes with one before it, once. A mount may lie below another one, and a copy below
// another copy: the order says which is seen. A copy and a mount must keep apart: the copy would be written through
// the mount into the host's own files, or be hidden by it.
func (t targets) check(errs *Errors) {
	for i, late := range t {
		for _, early := range t[:i] {
			if late.clash(errs, early) {
				break
			}
		}
	}
}

func (t target) clash(errs *Errors, early target) bool {
	switch {
	case t.path == early.path:
		errs.add(t.field, "%s is the target of %s already", short(t.path), early.owner)
	case early.file && within(t.path, early.path):
		errs.add(t.field, "%s lies below %s, the target of %s, which is a file", short(t.path), short(early.path), early.owner)
	case t.file && early.copied && within(early.path, t.path):
		errs.add(t.field, "%s holds %s, the target of %s, and a secret is a file", short(t.path), short(early.path), early.owner)
	case t.copied == early.copied:
		return false
	case within(t.path, early.path):
		errs.add(t.field, "%s lies below %s, the target of %s, and would be written to the host: copy to a place outside",
			short(t.path), short(early.path), early.owner)
	case within(early.path, t.path):
		errs.add(t.field, "%s holds %s, the target of %s, so the copy could be written to the host: copy the parts beside it one by one",
			short(t.path), short(early.path), early.owner)
	default:
		return false
	}
	return true
}
