package validate

import "regexp"

var (
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{2,198}[A-Za-z0-9]$`)
	namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

const (
	idRule   = `must be 4 to 200 ASCII letters, digits, "-" and "_", the first and last a letter or digit`
	nameRule = `must be 1 to 63 lower-case ASCII letters, digits and "-", the first and last a letter or digit`
)

// SandboxID checks an ID that a client chose for a sandbox. Empty is not valid here; it means "choose one" to callers.
func SandboxID(id string) Errors { return checkID("sandbox_id", id) }

// ExecID checks an ID that a client chose for an exec.
func ExecID(id string) Errors { return checkID("exec_id", id) }

func checkID(field, id string) (errs Errors) {
	if !idPattern.MatchString(id) {
		errs.add(field, idRule)
	}
	return errs
}

// Name checks the name of a sandbox: a DNS label.
func Name(name string) (errs Errors) {
	if !namePattern.MatchString(name) {
		errs.add("name", nameRule)
	}
	return errs
}
