package validate

import (
	"path"
	"regexp"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	maxSecrets    = 64
	maxSecretName = 63
)

// secretPattern keeps names apart from agboxd's own files, which begin with a dot.
var secretPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// ServiceSecrets is the directory of the secrets in the container of a service.
const ServiceSecrets = "/run/secrets"

// secrets checks the secrets of the container whose fields begin with prefix, and adds their targets as far as they are valid.
func (t *targets) secrets(errs *Errors, prefix string, secrets []*agboxv1.SecretSpec, refused func(string) string) {
	seen := map[string]bool{}
	checkEach(errs, prefix+"secrets", secrets, maxSecrets, func(at string, s *agboxv1.SecretSpec) {
		name := s.GetName()
		valid := len(name) <= maxSecretName && secretPattern.MatchString(name)
		if valid {
			at = keyed(prefix+"secrets", name)
		}
		errs.addIf(!valid, at+".name", `%s must be 1 to %d ASCII letters, digits, "-", "_" and ".", the first a letter or digit`,
			short(name), maxSecretName)
		errs.addIf(seen[name], at+".name", "is a duplicate secret name")
		seen[name] = true
		checkPath(errs, at+".file", s.GetFile())
		if valid {
			checkInject(errs, at, prefix, s)
		}
		one := target{owner: at, path: s.GetTarget(), field: at + ".target", copied: true, file: true}
		if one.path == "" || !checkPath(errs, one.field, one.path) {
			return
		}
		if why := refused(one.path); why != "" {
			errs.add(one.field, "%s %s", short(one.path), why)
			return
		}
		*t = append(*t, one)
	})
}

// refusedServiceSecret says why a secret of a service can't be at p, or returns "".
func refusedServiceSecret(p string) string {
	if path.Dir(p) != ServiceSecrets || strings.HasPrefix(path.Base(p), ".") || len(path.Base(p)) > maxSecretName {
		return "is not a file directly in " + ServiceSecrets + ", where the secrets of a service are"
	}
	return ""
}

// refusedSecret says why a secret can't be at p, or returns "".
func refusedSecret(p string) string {
	if within(p, "/var/run") {
		return "goes through a symbolic link in most images: write /run"
	}
	return refusedCopy(p)
}
