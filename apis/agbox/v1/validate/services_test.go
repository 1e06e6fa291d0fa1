package validate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

func healthy(name string) *agboxv1.ServiceSpec {
	return &agboxv1.ServiceSpec{
		Name: name, Image: "postgres:17", Healthcheck: &agboxv1.HealthcheckConfig{Test: []string{"CMD", "pg_isready"}},
	}
}

func TestServices(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*agboxv1.CreateSpec)
		want   string
	}{
		{"all that a service can have", func(s *agboxv1.CreateSpec) {
			db := healthy("db")
			db.Envs, db.PostStartOnPrimary = map[string]string{"A": "secret"}, []string{"migrate up"}
			db.Command, db.User, db.WorkingDir, db.CpuLimit, db.MemoryLimit, db.PidsLimit = []string{"x"}, "pg", "/", 1, "1g", 64
			db.Ports = []*agboxv1.PortSpec{{ContainerPort: 5432}}
			db.RestartPolicy, db.PullPolicy = "always", "never"
			s.RequiredServices = []*agboxv1.ServiceSpec{db}
			s.OptionalServices = []*agboxv1.ServiceSpec{{Name: "primary", Image: "redis"}}
		}, ""},
		{"nothing set", func(s *agboxv1.CreateSpec) {
			s.RequiredServices = []*agboxv1.ServiceSpec{{}}
			s.OptionalServices = []*agboxv1.ServiceSpec{{}}
		}, "required_services[0].name: service name is required; required_services[0].image: is required; " +
			"required_services[0].healthcheck: must define healthcheck; optional_services[0].name: service name is required; optional_services[0].image: is required"},
		{"names that cannot be resolved", func(s *agboxv1.CreateSpec) {
			s.OptionalServices = []*agboxv1.ServiceSpec{healthy("a b"), healthy(".."), healthy("ä"), healthy(strings.Repeat("x", 64)),
				healthy("Localhost"), healthy("10"), healthy("0XA"), healthy("127.1"), healthy("10a")}
		}, "optional_services[0].name: 1 to 63; optional_services[1].name: 1 to 63; optional_services[2].name: 1 to 63; " +
			"optional_services[3].name: 1 to 63; optional_services[Localhost].name: stands for; optional_services[10].name: IP address; " +
			"optional_services[0XA].name: IP address; optional_services[127.1].name: IP address"},
		{"names of older clients", func(s *agboxv1.CreateSpec) {
			s.OptionalServices = []*agboxv1.ServiceSpec{healthy("Db"), healthy("a.b"), healthy("my_db"), healthy("-x-"), healthy(strings.Repeat("x", 63))}
		}, ""},
		{"a name twice, across the lists", func(s *agboxv1.CreateSpec) {
			s.RequiredServices = []*agboxv1.ServiceSpec{healthy("db"), healthy("db")}
			s.OptionalServices = []*agboxv1.ServiceSpec{healthy("db")}
		}, "required_services[1].name: duplicate service name: required_services[db]; optional_services[0].name: duplicate service name: required_services[db]"},
		{"violations name the service", func(s *agboxv1.CreateSpec) {
			db := healthy("db")
			db.Image, db.User, db.MemoryLimit, db.Envs = "A", "-", "1k", map[string]string{"a b": "secret"}
			db.Command, db.WorkingDir, db.RestartPolicy = []string{""}, "x", "x"
			s.RequiredServices = []*agboxv1.ServiceSpec{db}
		}, "required_services[db].image: not an image; required_services[db].envs[a b]: bad name; required_services[db].command[0]: program; " +
			"required_services[db].user: uid; required_services[db].working_dir: absolute; required_services[db].memory_limit: range; " +
			"required_services[db].restart_policy: never"},
		{"a host port of the primary and of a service", func(s *agboxv1.CreateSpec) {
			db := healthy("db")
			db.Ports = []*agboxv1.PortSpec{{ContainerPort: 80, HostPort: 8080}, {ContainerPort: 81}}
			s.Ports = []*agboxv1.PortSpec{{ContainerPort: 80, HostPort: 8080, Protocol: "tcp"}, {ContainerPort: 81}}
			s.OptionalServices = []*agboxv1.ServiceSpec{db}
		}, "optional_services[db].ports[0].host_port: 8080/tcp is already published by ports[0]"},
		{"hooks", func(s *agboxv1.CreateSpec) {
			db, more, opt := healthy("db"), healthy("more"), healthy("opt")
			db.PostStartOnPrimary = []string{"true", " ", "a\x00", strings.Repeat("x", 128<<10)}
			more.PostStartOnPrimary = make([]string, 65)
			opt.PostStartOnPrimary = []string{"true"}
			s.RequiredServices, s.OptionalServices = []*agboxv1.ServiceSpec{db, more}, []*agboxv1.ServiceSpec{opt}
		}, "required_services[db].post_start_on_primary[1]: empty; required_services[db].post_start_on_primary[2]: NUL; " +
			"required_services[db].post_start_on_primary[3]: limit; required_services[more].post_start_on_primary: limit is 64; " +
			"optional_services[opt].post_start_on_primary: required services only"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := &agboxv1.CreateSpec{Image: "a"}
			tc.change(spec)
			check(t, validate.Create(spec), tc.want)
		})
	}
}

func TestNameOfService(t *testing.T) {
	spec := &agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{healthy("DB"), {}}}
	check(t, validate.NameOfService("web", spec), "")
	check(t, validate.NameOfService("", spec), "")
	check(t, validate.NameOfService("db", spec), "optional_services[DB].name: name of the sandbox as well")
}

func TestNumberOfServices(t *testing.T) {
	spec := &agboxv1.CreateSpec{Image: "a"}
	for i := range 100 {
		spec.RequiredServices = append(spec.RequiredServices, healthy(fmt.Sprintf("db-%d", i)))
	}
	check(t, validate.Create(spec), "")
	spec.OptionalServices = []*agboxv1.ServiceSpec{healthy("one-more")}
	check(t, validate.Create(spec), "required_services: have 101 entries together")
	spec.RequiredServices[0].Image = strings.Repeat("x", 1<<20)
	check(t, validate.Create(spec), "create_spec: limit is 1048576")
}

func TestHealthchecks(t *testing.T) {
	duration := durationpb.New
	for _, tc := range []struct {
		name               string
		hc                 *agboxv1.HealthcheckConfig
		required, optional string // parts of the message; empty is valid
	}{
		{"none", nil, "is required", ""},
		{"no test", &agboxv1.HealthcheckConfig{Retries: 3}, "test is required", ""},
		{"a program", &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true", ""}}, "", ""},
		{"a command line", &agboxv1.HealthcheckConfig{Test: []string{"CMD-SHELL", "exit 0"}}, "", ""},
		{"switched off", &agboxv1.HealthcheckConfig{Test: []string{"NONE"}}, "must not be NONE", ""},
		{"switched off with words", &agboxv1.HealthcheckConfig{Test: []string{"NONE", "x"}}, "must not be NONE", "NONE alone"},
		{"no program", &agboxv1.HealthcheckConfig{Test: []string{"CMD"}}, "names no command", "names no command"},
		{"an empty program", &agboxv1.HealthcheckConfig{Test: []string{"CMD", ""}}, "names no command", "names no command"},
		{"a line of several words", &agboxv1.HealthcheckConfig{Test: []string{"CMD-SHELL", "curl", "-f"}}, "one", "one"},
		{"an empty line", &agboxv1.HealthcheckConfig{Test: []string{"CMD-SHELL", " "}}, "names no command", "names no command"},
		{"a bare program", &agboxv1.HealthcheckConfig{Test: []string{"pg_isready"}}, "is not known", "is not known"},
		{"a NUL", &agboxv1.HealthcheckConfig{Test: []string{"CMD", "a\x00"}}, "NUL", "NUL"},
		{"all times", &agboxv1.HealthcheckConfig{
			Test: []string{"CMD", "a"}, Interval: duration(time.Millisecond), Timeout: duration(24 * time.Hour), StartPeriod: duration(0),
			StartInterval: duration(time.Second), Retries: 1000,
		}, "", ""},
		{"a negative time", &agboxv1.HealthcheckConfig{Test: []string{"CMD", "a"}, Interval: duration(-1)}, "interval must be", "interval must be"},
		{"less than the engine's smallest time", &agboxv1.HealthcheckConfig{Test: []string{"CMD", "a"}, Timeout: duration(999_999)}, "timeout must be", "timeout must be"},
		{"too long", &agboxv1.HealthcheckConfig{Test: []string{"CMD", "a"}, StartPeriod: duration(24*time.Hour + 1)}, "start_period must be", "start_period must be"},
		{"no duration", &agboxv1.HealthcheckConfig{Test: []string{"CMD", "a"}, StartInterval: &durationpb.Duration{Seconds: 1, Nanos: -1}}, "start_interval must be", "start_interval must be"},
		{"too many retries", &agboxv1.HealthcheckConfig{Test: []string{"CMD", "a"}, Retries: 1001}, "retries must be", "retries must be"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db := healthy("db")
			db.Healthcheck = tc.hc
			list := []*agboxv1.ServiceSpec{db}
			one(t, validate.Create(&agboxv1.CreateSpec{Image: "a", RequiredServices: list}), tc.required)
			one(t, validate.Create(&agboxv1.CreateSpec{Image: "a", OptionalServices: list}), tc.optional)
		})
	}
}

// one expects a single broken rule with the text, or none when it is empty.
func one(t *testing.T, errs validate.Errors, text string) {
	t.Helper()
	if text == "" && len(errs) == 0 {
		return
	}
	if text == "" || len(errs) != 1 || !strings.Contains(errs[0].Message, text) {
		t.Errorf("got %v, want %q", errs, text)
	}
}
