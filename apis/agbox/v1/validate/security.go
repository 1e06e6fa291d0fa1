package validate

import (
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/privilege"
)

func checkSecurity(errs *Errors, s *agboxv1.SecuritySpec) {
	checkWord(errs, "security.profile", s.GetProfile(), "standard", "hardened")
	checkWord(errs, "security.seccomp", s.GetSeccomp(), "unconfined")
	for i, name := range s.GetCapabilitiesAdd() { // sorted
		errs.addIf(privilege.Capability(name) < 0, "security.capabilities_add", `%s is no capability: write it as "NET_RAW"`, short(name))
		errs.addIf(i > 0 && name == s.GetCapabilitiesAdd()[i-1], "security.capabilities_add", "%s is listed twice", short(name))
	}
}

// Loosening is a setting of a spec that gives its processes more than their profile, and the word by which the configuration allows it.
type Loosening struct{ Field, Word string }

// Loosenings returns the settings of a spec that loosen the profile of the sandbox, which is "standard" or "hardened".
func Loosenings(s *agboxv1.SecuritySpec, profile string) (all []Loosening) {
	for _, name := range s.GetCapabilitiesAdd() {
		all = append(all, Loosening{"security.capabilities_add", name})
	}
	if s.GetSeccomp() == "unconfined" {
		all = append(all, Loosening{"security.seccomp", privilege.NoSeccomp})
	}
	if profile == "hardened" && s != nil && s.NoNewPrivileges != nil && !s.GetNoNewPrivileges() {
		all = append(all, Loosening{"security.no_new_privileges", privilege.NewPrivileges})
	}
	return all
}
