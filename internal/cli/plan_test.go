package cli

import (
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// A refusal says what the daemon has said, where that is more than that a field cannot be changed.
func TestRefusalsSayWhy(t *testing.T) {
	spec := func(image string, secrets ...*agboxv1.SecretSpec) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Image: image, Envs: map[string]string{"A": image}, Secrets: secrets}
	}
	kept := &agboxv1.SecretSpec{Name: "k", File: "/k", Target: "/t"}
	added := &agboxv1.SecretSpec{Name: "k", File: "/k", Target: "/t", Inject: []*agboxv1.InjectRule{{Host: "a.example", Header: "X: ${k}"}}}
	const rule = "secrets cannot get the first inject rule, or lose the last one, in place"
	for want, c := range map[string][2]*agboxv1.CreateSpec{
		"envs[A], image cannot be changed in place": {spec("a"), spec("b")},
		rule: {spec("a", kept), spec("a", added)},
		"envs[A], image cannot be changed in place; " + rule:              {spec("a", added), spec("b", kept)},
		"secrets can be changed in place only where there is one already": {spec("a"), spec("a", kept)},
	} {
		_, _, errs := validate.Update(c[0], c[1])
		p := plan{because: reasonsFor(errs)}
		for _, one := range errs {
			p.immutable = append(p.immutable, one.Field)
		}
		if got := p.refusal(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
