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
