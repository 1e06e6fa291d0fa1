package validate_test

import (
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

func TestVolumes(t *testing.T) {
	volume := func(name, target string) *agboxv1.VolumeSpec { return &agboxv1.VolumeSpec{Name: name, Target: target} }
	for want, spec := range map[string]*agboxv1.CreateSpec{
		"": {Volumes: []*agboxv1.VolumeSpec{volume("data", "/data"), volume("0_a.b-c", "/data/below")}, RequiredServices: []*agboxv1.ServiceSpec{
			{Name: "db", Image: "x", Healthcheck: healthy("db").GetHealthcheck(), Volumes: []*agboxv1.VolumeSpec{volume("data", "/data")}},
		}},
		`volumes[0].name "Data" must be 1 to 63 lowercase ASCII letters`:    {Volumes: []*agboxv1.VolumeSpec{volume("Data", "/x")}},
		`volumes[0].name "-a" must be`:                                      {Volumes: []*agboxv1.VolumeSpec{volume("-a", "/x")}},
		`volumes[0].name "a/b" must be`:                                     {Volumes: []*agboxv1.VolumeSpec{volume("a/b", "/x")}},
		`volumes[a].name is a duplicate volume name`:                        {Volumes: []*agboxv1.VolumeSpec{volume("a", "/x"), volume("a", "/y")}},
		`volumes[a].target is required`:                                     {Volumes: []*agboxv1.VolumeSpec{volume("a", "")}},
		`volumes[a].target must be an absolute path`:                        {Volumes: []*agboxv1.VolumeSpec{volume("a", "x")}},
		`volumes[a].target "/" cannot be mounted over`:                      {Volumes: []*agboxv1.VolumeSpec{volume("a", "/")}},
		`volumes[a].target "/run" holds /run/agbox`:                         {Volumes: []*agboxv1.VolumeSpec{volume("a", "/run")}},
		`volumes[a].target "/m" is the target of mounts[0] already`:         {Mounts: []*agboxv1.MountSpec{mount("/m", "/m")}, Volumes: []*agboxv1.VolumeSpec{volume("a", "/m")}},
		`copies[0].target "/v/f" lies below "/v", the target of volumes[a]`: {Copies: []*agboxv1.CopySpec{copied("/c", "/v/f")}, Volumes: []*agboxv1.VolumeSpec{volume("a", "/v")}},
		`optional_services[db].volumes[b].target "/x" is the target of optional_services[db].volumes[a] already`: {OptionalServices: []*agboxv1.ServiceSpec{
			{Name: "db", Image: "x", Volumes: []*agboxv1.VolumeSpec{volume("a", "/x"), volume("b", "/x")}},
		}},
	} {
		spec.Image = "x"
		if got := validate.Create(spec).Error(); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestOnlyASandboxWithANameHasVolumes(t *testing.T) {
	spec := &agboxv1.CreateSpec{
		Volumes:          []*agboxv1.VolumeSpec{{Name: "a"}},
		RequiredServices: []*agboxv1.ServiceSpec{{Name: "db", Volumes: []*agboxv1.VolumeSpec{{Name: "b"}}}, {Name: "mq"}},
	}
	if got := validate.NameForVolumes("web", spec); len(got) > 0 || !validate.HasVolumes(spec) || validate.HasVolumes(&agboxv1.CreateSpec{}) {
		t.Error(got)
	}
	const why = " belong to the name of a sandbox, and this one has none: give it a name"
	if got := validate.NameForVolumes("", spec).Error(); got != "volumes"+why+"; required_services[db].volumes"+why {
		t.Error(got)
	}
}
