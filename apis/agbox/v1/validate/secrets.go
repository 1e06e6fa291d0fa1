package validate

import (
	"regexp"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	maxSecrets    = 64
	maxSecretName = 63
)

// secretPattern keeps names apart from agboxd's own files, which begin with a dot.
var secretPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// secrets checks the secrets and adds their targets as far as they are valid.
func (t *targets) secrets(errs *Errors, secrets []*agboxv1.SecretSpec) {
	seen := map[string]bool{}
	checkEach(errs, "secrets", secrets, maxSecrets, func(at string, s *agboxv1.SecretSpec) {
		name := s.GetName()
		valid := len(name) <= maxSecretName && secretPattern.MatchString(name)
		if valid {
			at = keyed("secrets", name)
		}
		errs.addIf(!valid, at+".name", `%s must be 1 to %d ASCII letters, digits, "-", "_" and ".", the first a letter or digit`,
			short(name), maxSecretName)
		errs.addIf(seen[name], at+".name", "is a duplicate secret name")
		seen[name] = true
		checkPath(errs, at+".file", s.GetFile())
		one := target{owner: at, path: s.GetTarget(), field: at + ".target", copied: true, file: true}
		if one.path == "" || !checkPath(errs, one.field, one.path) {
			return
		}
		if why := refusedSecret(one.path); why != "" {
			errs.add(one.field, "%s %s", short(one.path), why)
			return
		}
		*t = append(*t, one)
	})
}

// refusedSecret says why a secret can't be at p, or returns "".
func refusedSecret(p string) string {
	if within(p, "/var/run") {
		return "goes through a symbolic link in most images: write /run"
	}
	return refusedCopy(p)
}
