package plan

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func spec() *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{
		Image:  "agbox-base:dev",
		Mounts: []*agboxv1.MountSpec{{Source: "/src", Target: "/dst", Writable: true}},
		Envs:   map[string]string{"A": "1", "TOKEN": "secret"},
		Labels: map[string]string{"team": "x"},
	}
}

// The value is pinned: a hash that changed with a release would make every container appear drifted.
func TestSpecHashIsPinned(t *testing.T) {
	if got, want := SpecHash(spec()), "v2:07122a85857da431d3d36733c9df1234"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSpecHashCoversWhatIsFixedInTheContainers(t *testing.T) {
	full := func() *agboxv1.CreateSpec {
		s := spec()
		s.Command, s.CpuLimit, s.IdleTtl = []string{"a", "b"}, 1, durationpb.New(time.Hour)
		s.RequiredServices = []*agboxv1.ServiceSpec{{Name: "db", Image: "x", PidsLimit: 100, Healthcheck: &agboxv1.HealthcheckConfig{Retries: 3}}}
		return s
	}
	base := SpecHash(full())
	for name, mutate := range map[string]func(*agboxv1.CreateSpec){
		"image":             func(s *agboxv1.CreateSpec) { s.Image = "other" },
		"mount":             func(s *agboxv1.CreateSpec) { s.Mounts[0].Writable = false },
		"env":               func(s *agboxv1.CreateSpec) { s.Envs["A"] = "2" },
		"where an arg ends": func(s *agboxv1.CreateSpec) { s.Command = []string{"ab"} },
		"user":              func(s *agboxv1.CreateSpec) { s.User = "root" },
		"a service's image": func(s *agboxv1.CreateSpec) { s.RequiredServices[0].Image = "y" },
		"a healthcheck":     func(s *agboxv1.CreateSpec) { s.RequiredServices[0].Healthcheck.Retries = 4 },
		"its timeout": func(s *agboxv1.CreateSpec) {
			s.RequiredServices[0].Healthcheck.Timeout = durationpb.New(time.Second)
		},
		"required or not": func(s *agboxv1.CreateSpec) { s.OptionalServices, s.RequiredServices = s.RequiredServices, nil },
	} {
		s := full()
		if mutate(s); SpecHash(s) == base {
			t.Errorf("a change of %s keeps the hash", name)
		}
	}
	for name, mutate := range map[string]func(*agboxv1.CreateSpec){
		"labels":            func(s *agboxv1.CreateSpec) { s.Labels["team"] = "y" },
		"cpu_limit":         func(s *agboxv1.CreateSpec) { s.CpuLimit = 2 },
		"idle_ttl":          func(s *agboxv1.CreateSpec) { s.IdleTtl = nil },
		"timeout":           func(s *agboxv1.CreateSpec) { s.Timeout, s.OnTimeout = durationpb.New(time.Hour), "pause" },
		"a service's limit": func(s *agboxv1.CreateSpec) { s.RequiredServices[0].PidsLimit = 200 },
	} {
		s := full()
		if mutate(s); SpecHash(s) != base {
			t.Errorf("%s can change in place and is part of the hash", name)
		}
	}
}
