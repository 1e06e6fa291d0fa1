package validate_test

import (
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

func TestSecrets(t *testing.T) {
	secret := func(name, file, target string) *agboxv1.SecretSpec {
		return &agboxv1.SecretSpec{Name: name, File: file, Target: target}
	}
	secrets := func(all ...*agboxv1.SecretSpec) *agboxv1.CreateSpec { return &agboxv1.CreateSpec{Secrets: all} }
	service := func(all ...*agboxv1.SecretSpec) *agboxv1.CreateSpec {
		db := healthy("db")
		db.Secrets = all
		return &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db}}
	}
	for want, spec := range map[string]*agboxv1.CreateSpec{
		"": secrets(secret("API_TOKEN", "/etc/a", "/run/secrets/a"), secret("b.c-d", "/etc/a", "/home/agbox/.netrc"), secret("later", "/etc/a", "")),
		`secrets[0].name ".a" must be 1 to 63 ASCII letters`:                    secrets(secret(".a", "/a", "/x")),
		`secrets[0].name "a/b" must be`:                                         secrets(secret("a/b", "/a", "/x")),
		`secrets[a].name is a duplicate secret name`:                            secrets(secret("a", "/a", "/x"), secret("a", "/a", "/y")),
		`secrets[a].file is required`:                                           secrets(secret("a", "", "/x")),
		`secrets[a].file must be an absolute path`:                              secrets(secret("a", "etc/a", "/x")),
		`secrets[a].target must be an absolute path`:                            secrets(secret("a", "/a", "x")),
		`secrets[a].target "/proc/x" cannot be`:                                 secrets(secret("a", "/a", "/proc/x")),
		`secrets[a].target "/etc/hosts" cannot be`:                              secrets(secret("a", "/a", "/etc/hosts")),
		`secrets[a].target "/run/agbox/x" lies in /run/agbox`:                   secrets(secret("a", "/a", "/run/agbox/x")),
		`secrets[a].target "/run" holds /run/agbox`:                             secrets(secret("a", "/a", "/run")),
		`secrets[a].target "/var/run/secrets/a" goes through a symbolic link`:   secrets(secret("a", "/a", "/var/run/secrets/a")),
		`secrets[b].target "/x" is the target of secrets[a] already`:            secrets(secret("a", "/a", "/x"), secret("b", "/a", "/x")),
		`secrets[b].target "/x/y" lies below "/x", the target of secrets[a], w`: secrets(secret("a", "/a", "/x"), secret("b", "/a", "/x/y")),
		`secrets[b].target "/x" holds "/x/y", the target of secrets[a], and a`:  secrets(secret("a", "/a", "/x/y"), secret("b", "/a", "/x")),
		`secrets[a].target "/m/x" lies below "/m", the target of mounts[0], and would be written to the host`: {
			Mounts: []*agboxv1.MountSpec{mount("/m", "/m")}, Secrets: []*agboxv1.SecretSpec{secret("a", "/a", "/m/x")},
		},
		`secrets[a].target "/v/x" lies below "/v", the target of volumes[v]`: {
			Volumes: []*agboxv1.VolumeSpec{{Name: "v", Target: "/v"}}, Secrets: []*agboxv1.SecretSpec{secret("a", "/a", "/v/x")},
		},
		`required_services[db].secrets[a].target "/etc/a" is not a file directly in /run/secrets`:           service(secret("a", "/a", "/etc/a")),
		`required_services[db].secrets[a].target "/run/secrets/b/a" is not a file directly`:                 service(secret("a", "/a", "/run/secrets/b/a")),
		`required_services[db].secrets[b].target "/run/secrets/a" is the target of required_services[db].s`: service(secret("a", "/a", "/run/secrets/a"), secret("b", "/a", "/run/secrets/a")),
		`required_services[db].volumes[v].target "/run/secrets/v" lies in /run/secrets, where`: func() *agboxv1.CreateSpec {
			s := service(secret("a", "/a", "/run/secrets/a"))
			s.RequiredServices[0].Volumes = []*agboxv1.VolumeSpec{{Name: "v", Target: "/run/secrets/v"}}
			return s
		}(),
	} {
		spec.Image = "x"
		if got := validate.Create(spec).Error(); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestInject(t *testing.T) {
	const header = "Authorization: Bearer ${k}"
	secret := func(name string, rules ...*agboxv1.InjectRule) *agboxv1.SecretSpec {
		return &agboxv1.SecretSpec{Name: name, File: "/etc/a", Inject: rules}
	}
	rule := func(host, header string) *agboxv1.InjectRule { return &agboxv1.InjectRule{Host: host, Header: header} }
	in := func(mode string, secrets ...*agboxv1.SecretSpec) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Mode: mode}, Secrets: secrets}
	}
	service := func() *agboxv1.CreateSpec {
		db := healthy("db")
		db.Secrets = []*agboxv1.SecretSpec{secret("k", rule("a.example", header))}
		db.Secrets[0].Target = "/run/secrets/k"
		return &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db}}
	}
	denied := in("internet", secret("k", rule("a.example:8443", header)))
	denied.Network.Deny = []string{"a.example"}
	below := in("internal", secret("k", rule("api.a.example", header), rule("*.b.a.example", header), rule("a.example", header)))
	below.Network.Deny = []string{"*.a.example", "*.c.example"}
	many := secret("k")
	for range 17 {
		many.Inject = append(many.Inject, rule("a.example", header))
	}
	for want, spec := range map[string]*agboxv1.CreateSpec{
		"": {Secrets: []*agboxv1.SecretSpec{secret("k", rule("a.example", header), rule("a.example:8443", header), rule("a.example", "X: ${k}")), secret("l", rule("*.a.example", "Authorization: ${l}"))}},
		`secrets[k].inject[0].host "10.0.0.1" is no domain`:                                                                                        in("internet", secret("k", rule("10.0.0.1", header))),
		`secrets[k].inject[0].header does not contain ${k}`:                                                                                        in("internet", secret("k", rule("a.example", "Authorization: Bearer the-value-itself"))),
		`secrets[k].inject[0].host "https://a.example/v1" is a URL`:                                                                                in("internet", secret("k", rule("https://a.example/v1", header))),
		`secrets[k].inject[0].host has blanks`:                                                                                                     in("internet", secret("k", rule("Authorization: the-value-itself", "a.example"))),
		`secrets[k].inject has 17 entries; the limit is 16`:                                                                                        in("internet", many),
		`secrets[k].inject[0] needs a network policy of the mode "internet" or "internal", not "open"`:                                             in("open", secret("k", rule("a.example", header))),
		`secrets[k].inject[0] needs a network policy of the mode "internet" or "internal", not "none"`:                                             in("none", secret("k", rule("a.example", header))),
		`secrets[k].inject[0].host "a.example:8443" is denied by network.deny`:                                                                     denied,
		`secrets[k].inject[0].host "api.a.example" is denied by network.deny; secrets[k].inject[1].host "*.b.a.example" is denied by network.deny`: below,
		`secrets[l].inject[0] sets the header Authorization of "A.example:443", as secrets[k].inject[0] does`:                                      in("internal", secret("k", rule("a.example", header)), secret("l", rule("A.example:443", "authorization: ${l}"))),
		`required_services[db].secrets[k].inject has no effect in a service: give the secret to the sandbox itself`:                                service(),
	} {
		spec.Image = "x"
		got := validate.Create(spec).Error()
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if strings.Contains(got, "the-value-itself") {
			t.Errorf("the error repeats a header: %s", got)
		}
	}
}

// What makes programs trust the authority is in a container from its creation.
func TestInjectComesWithTheContainer(t *testing.T) {
	of := func(secrets ...*agboxv1.SecretSpec) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Image: "x", Secrets: secrets}
	}
	plain := &agboxv1.SecretSpec{Name: "k", File: "/k", Target: "/k"}
	rule := func(host string) *agboxv1.SecretSpec {
		return &agboxv1.SecretSpec{Name: "k", File: "/k", Inject: []*agboxv1.InjectRule{{Host: host, Header: "X: ${k}"}}}
	}
	for _, tc := range []struct {
		name          string
		before, after *agboxv1.CreateSpec
		ok            bool
	}{
		{"another rule", of(rule("a.example")), of(rule("b.example")), true},
		{"the first rule", of(plain), of(rule("a.example")), false},
		{"the first secret", of(), of(rule("a.example")), false},
		{"no rule any more", of(rule("a.example")), of(plain), false},
		{"no secret any more", of(rule("a.example")), of(), false},
	} {
		if _, _, errs := validate.Update(tc.before, tc.after); (len(errs) == 0) != tc.ok || len(errs) > 1 {
			t.Errorf("%s: %v", tc.name, errs)
		}
	}
}
