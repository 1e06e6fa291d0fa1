package validate

import (
	"errors"
	"fmt"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/inject"
	"github.com/agbox/agbox/apis/netentry"
)

// maxInjectRules bounds the rules of a secret.
const maxInjectRules = 16

// checkInject checks the rules of the secret at a path; prefix is empty for those of the sandbox itself.
func checkInject(errs *Errors, at, prefix string, s *agboxv1.SecretSpec) {
	errs.addIf(prefix != "" && len(s.GetInject()) > 0, at+".inject", "has no effect in a service: give the secret to the sandbox itself")
	checkEach(errs, at+".inject", s.GetInject(), maxInjectRules, func(at string, r *agboxv1.InjectRule) {
		_, err := inject.Parse(s.GetName(), r)
		if wrong, ok := errors.AsType[*inject.Error](err); ok {
			text := r.GetHost()
			if wrong.Field == "header" || strings.ContainsAny(text, " \t") {
				text = "" // a mistake may have put the value itself there
			}
			errs.add(at+"."+wrong.Field, "%s", joined(text, wrong.Why))
		}
	})
}

func joined(text, why string) string {
	if text == "" {
		return why
	}
	return short(text) + " " + why
}

// checkInjected checks the rules of all secrets beside each other and the network policy. Rules with mistakes of their own are left out.
func checkInjected(errs *Errors, spec *agboxv1.CreateSpec) {
	type key struct{ host, header string }
	taken := map[key]string{}
	var denied []netentry.Entry
	for _, text := range spec.GetNetwork().GetDeny() {
		if e, err := netentry.Parse(text); err == nil && e.Domain != "" {
			denied = append(denied, e)
		}
	}
	for _, s := range spec.GetSecrets() {
		for i, one := range s.GetInject() {
			r, err := inject.Parse(s.GetName(), one)
			if err != nil {
				continue
			}
			at := fmt.Sprintf("%s.inject[%d]", keyed("secrets", s.GetName()), i)
			if mode := spec.GetNetwork().GetMode(); mode == "open" || mode == "none" {
				errs.add(at, `needs a network policy of the mode "internet" or "internal", not %q`, mode)
			}
			for _, d := range denied {
				errs.addIf(d.NamesAll(r.Host), at+".host", "%s is denied by network.deny", short(one.GetHost()))
			}
			k := key{fmt.Sprint(r.Host), r.Name}
			errs.addIf(taken[k] != "", at, "sets the header %s of %s, as %s does", r.Name, short(one.GetHost()), taken[k])
			taken[k] = at
		}
	}
}
