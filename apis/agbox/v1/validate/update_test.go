package validate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

func full() *agboxv1.CreateSpec {
	db := healthy("db")
	db.Envs = map[string]string{"PGPASSWORD": "secret"}
	return &agboxv1.CreateSpec{
		Image: "a", Mounts: []*agboxv1.MountSpec{mount("/a", "/a")}, Copies: []*agboxv1.CopySpec{copied("/c", "/c", "*.o")}, BuiltinTools: []string{"git"},
		RequiredServices: []*agboxv1.ServiceSpec{db, healthy("mq")}, OptionalServices: []*agboxv1.ServiceSpec{healthy("x"), healthy("y")},
		Labels: map[string]string{"team": "a"}, Envs: map[string]string{"A": "secret"}, IdleTtl: durationpb.New(time.Hour),
		Command: []string{"sleep", "1 h"}, User: "u", WorkingDir: "/w", Ports: []*agboxv1.PortSpec{{ContainerPort: 80}}, CpuLimit: 1, MemoryLimit: "1g",
		DiskLimit: "1g", PidsLimit: 100, Gpus: "all", Runtime: "runsc", RestartPolicy: "never", PullPolicy: "always", OnLogLimit: "drop", Entrypoint: "run",
		Timeout: durationpb.New(time.Hour), OnTimeout: "pause", AutoResume: true,
		Security: &agboxv1.SecuritySpec{Profile: "standard", ReadOnlyRoot: true, CapabilitiesAdd: []string{"NET_RAW", "SYS_PTRACE"}, Seccomp: "unconfined", NoNewPrivileges: proto.Bool(false)}, Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/v"}},
		Secrets: []*agboxv1.SecretSpec{{Name: "token", File: "/etc/token", Target: "/run/secrets/token"}},
		Gateway: &agboxv1.GatewaySpec{Owner: "me", Template: "base"}, KeepStopped: true, DefaultUser: "user",
		Network: &agboxv1.NetworkSpec{Mode: "internet", Allow: []string{"10.0.0.5:5432/tcp"}, Deny: []string{"1.1.1.1"}},
	}
}

func TestUpdate(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*agboxv1.CreateSpec)
		changed string // comma-separated; those refused begin with "!"
		limits  bool
	}{
		{"nothing", func(*agboxv1.CreateSpec) {}, "", false},
		{"nothing that means something", func(s *agboxv1.CreateSpec) {
			s.WorkingDir, s.Mounts[0].Target, s.Ports[0].Protocol = "/w/", "//a", "tcp"
			slices.Reverse(s.OptionalServices)
		}, "", false},
		{"an absent setting of the profile", func(s *agboxv1.CreateSpec) { s.Security.NoNewPrivileges = nil }, "!security.no_new_privileges", false},
		{"capabilities in another order", func(s *agboxv1.CreateSpec) { slices.Reverse(s.Security.CapabilitiesAdd) }, "", false},
		{"the profile left to the daemon", func(s *agboxv1.CreateSpec) { s.Security.Profile = "" }, "!security.profile", false},
		{"labels", func(s *agboxv1.CreateSpec) { s.Labels = map[string]string{"a": "", "team": "b"} }, "labels[a],labels[team]", false},
		{"a label with the value of none", func(s *agboxv1.CreateSpec) { s.Labels["x"] = "" }, "labels[x]", false},
		{"no labels", func(s *agboxv1.CreateSpec) { s.Labels = nil }, "labels[team]", false},
		{"idle_ttl never", func(s *agboxv1.CreateSpec) { s.IdleTtl = durationpb.New(0) }, "idle_ttl", false},
		{"idle_ttl default", func(s *agboxv1.CreateSpec) { s.IdleTtl = nil }, "idle_ttl", false},
		{"limits", func(s *agboxv1.CreateSpec) { s.CpuLimit, s.MemoryLimit, s.PidsLimit = 0, "", 0 }, "cpu_limit,memory_limit,pids_limit", true},
		{"policies", func(s *agboxv1.CreateSpec) { s.RestartPolicy, s.PullPolicy, s.OnLogLimit = "", "", "" }, "on_log_limit,pull_policy,restart_policy", false},
		{"lifetimes", func(s *agboxv1.CreateSpec) { s.Timeout, s.OnTimeout, s.AutoResume = durationpb.New(0), "stop", false }, "auto_resume,on_timeout,timeout", false},
		{"timeout default", func(s *agboxv1.CreateSpec) { s.Timeout = nil }, "timeout", false},
		{"limits of services", func(s *agboxv1.CreateSpec) {
			s.RequiredServices[0].MemoryLimit, s.OptionalServices[1].CpuLimit = "2g", 2
		}, "optional_services[y].cpu_limit,required_services[db].memory_limit", true},
		{"policies of services", func(s *agboxv1.CreateSpec) {
			s.RequiredServices[1].RestartPolicy, s.RequiredServices[1].PullPolicy = "always", "always"
		}, "required_services[mq].pull_policy,required_services[mq].restart_policy", false},
		{"the network policy", func(s *agboxv1.CreateSpec) { s.Network.Mode, s.Network.Allow = "internal", nil }, "network", false},
		{"no network policy any more", func(s *agboxv1.CreateSpec) { s.Network = &agboxv1.NetworkSpec{} }, "network", false},
		{"secrets of a sandbox that has some", func(s *agboxv1.CreateSpec) { s.Secrets = append(s.Secrets, &agboxv1.SecretSpec{Name: "b", File: "/b"}) }, "secrets", false},
		{"no secrets any more", func(s *agboxv1.CreateSpec) { s.Secrets = nil }, "secrets", false},
		{"all that is fixed", func(s *agboxv1.CreateSpec) {
			s.Image, s.Mounts[0].Writable, s.Copies, s.BuiltinTools, s.Envs = "b", true, nil, nil, map[string]string{"A": "secret2", "B": "secret"}
			s.Command, s.User, s.WorkingDir, s.Ports[0].HostPort, s.DiskLimit, s.Gpus, s.Runtime = nil, "", "", 1, "", "", ""
			s.Security.Profile, s.Security.ReadOnlyRoot, s.Volumes[0].Target, s.Entrypoint = "hardened", false, "/w", ""
		}, "!builtin_tools,!command,!copies,!disk_limit,!entrypoint,!envs[A],!envs[B],!gpus,!image,!mounts,!ports,!runtime,!security.profile,!security.read_only_root,!user,!volumes,!working_dir", false},
		{"some of both", func(s *agboxv1.CreateSpec) { s.Image, s.CpuLimit = "b", 2 }, "cpu_limit,!image", true},
		{"services that come and go", func(s *agboxv1.CreateSpec) {
			s.RequiredServices = []*agboxv1.ServiceSpec{healthy("new"), s.RequiredServices[1]}
			s.OptionalServices = nil
		}, "!optional_services[x],!optional_services[y],!required_services[db],!required_services[new]", false},
		{"another order of start", func(s *agboxv1.CreateSpec) { slices.Reverse(s.RequiredServices) }, "!required_services", false},
		{"inside a service", func(s *agboxv1.CreateSpec) {
			s.RequiredServices[0].Envs["PGPASSWORD"], s.RequiredServices[0].Image, s.RequiredServices[0].Healthcheck.Retries = "secret2", "b", 9
		}, "!required_services[db].envs[PGPASSWORD],!required_services[db].healthcheck,!required_services[db].image", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			after := full()
			tc.change(after)
			changed, limits, errs := validate.Update(full(), after)
			for _, e := range errs {
				changed[slices.Index(changed, e.Field)] = "!" + e.Field
				if want := e.Field + ` cannot be changed in place: delete and recreate ("agbox apply --replace")`; e.Message != want {
					t.Errorf("got %q, want %q", e.Message, want)
				}
			}
			if got := strings.Join(changed, ","); got != tc.changed || limits != tc.limits {
				t.Errorf("got %s, %v", got, limits)
			}
		})
	}
}

// A field that is added to the proto is compared without a change here, and fixed until it is listed as changeable.
func TestUpdateSeesEveryField(t *testing.T) {
	fields := full().ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		after := full()
		after.ProtoReflect().Clear(fields.Get(i))
		if proto.Equal(after, full()) {
			t.Fatalf("%s is not set by the test", fields.Get(i).TextName())
		}
		if changed, _, _ := validate.Update(full(), after); len(changed) == 0 {
			t.Errorf("%s went unseen", fields.Get(i).TextName())
		}
	}
}

func TestDiff(t *testing.T) {
	after := full()
	after.Image, after.Mounts[0].Writable, after.IdleTtl, after.CpuLimit, after.Gpus = "b", true, nil, 2.5, "1"
	after.Command, after.Ports = []string{"sleep", "2 h"}, nil
	after.Envs = map[string]string{"A": "secret2", "B": "secret"}
	after.Labels, after.Security = nil, nil
	db := after.RequiredServices[0]
	db.Envs, db.Healthcheck.Interval, db.Healthcheck.Retries = nil, durationpb.New(time.Second), 2
	after.RequiredServices = []*agboxv1.ServiceSpec{after.RequiredServices[1], db}
	after.OptionalServices[0].Name = "z"
	var got []string
	for _, c := range validate.Diff(full(), after) {
		got = append(got, fmt.Sprintf("%s: %s -> %s", c.Path, c.Old, c.New))
	}
	want := []string{
		`image: a -> b`,
		`mounts: [{source: /a, target: /a}] -> [{source: /a, target: /a, writable: true}]`,
		`required_services[db].envs[PGPASSWORD]: (set) -> `,
		`required_services[db].healthcheck: {test: ["CMD", "pg_isready"]} -> {test: ["CMD", "pg_isready"], interval: 1s, retries: 2}`,
		`required_services: in the order db, mq -> in the order mq, db`,
		`optional_services[x]: image postgres:17 -> `,
		`optional_services[z]:  -> image postgres:17`,
		`labels[team]: a -> `,
		`envs[A]: (set) -> (changed)`,
		`envs[B]:  -> (set)`,
		`idle_ttl: 1h0m0s -> `,
		`command: ["sleep", "1 h"] -> ["sleep", "2 h"]`,
		`ports: [{container_port: 80, protocol: tcp}] -> `,
		`cpu_limit: 1 -> 2.5`,
		`gpus: all -> 1`,
		`security.profile: standard -> `,
		`security.read_only_root: true -> `,
		`security.capabilities_add: ["NET_RAW", "SYS_PTRACE"] -> `,
		`security.seccomp: unconfined -> `,
		`security.no_new_privileges: false -> `,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := validate.Diff(nil, &agboxv1.CreateSpec{Security: &agboxv1.SecuritySpec{}}); len(got) != 0 {
		t.Errorf("nil differs from empty: %v", got)
	}
}

func TestTheFirstSecretOfAServiceNeedsANewSandbox(t *testing.T) {
	with, without := full(), full()
	with.OptionalServices[0].Secrets = []*agboxv1.SecretSpec{{Name: "a", File: "/a", Target: "/run/secrets/a"}}
	const path = "optional_services[x].secrets"
	if changed, _, errs := validate.Update(without, with); !strings.HasPrefix(errs.Error(), path+" can be changed in place only where") || !slices.Equal(changed, []string{path}) {
		t.Errorf("%q, %v", changed, errs)
	}
	if changed, _, errs := validate.Update(with, without); len(errs) > 0 || !slices.Equal(changed, []string{path}) {
		t.Errorf("%q, %v", changed, errs)
	}
}

// A sandbox without secrets may have a container of a release that delivers none.
func TestTheFirstSecretNeedsANewSandbox(t *testing.T) {
	before, after := full(), full()
	before.Secrets = nil
	changed, _, errs := validate.Update(before, after)
	if want := `secrets can be changed in place only where there is one already: delete and recreate ("agbox apply --replace")`; errs.Error() != want || !slices.Equal(changed, []string{"secrets"}) {
		t.Errorf("%q, %v", changed, errs)
	}
}
