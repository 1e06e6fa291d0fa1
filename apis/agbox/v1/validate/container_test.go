package validate_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

func TestContainerSettings(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*agboxv1.CreateSpec)
		want   string
	}{
		{"everything set", func(s *agboxv1.CreateSpec) {
			s.Command, s.User, s.WorkingDir = []string{"sleep", ""}, "agbox:1000", "/srv//x/"
			s.Ports = []*agboxv1.PortSpec{{ContainerPort: 80}, {ContainerPort: 80, Protocol: "udp"}, {ContainerPort: 65535, HostPort: 65535}}
			s.CpuLimit, s.MemoryLimit, s.DiskLimit, s.PidsLimit = 0.5, "16MiB", "10g", 64
			s.Gpus, s.Runtime = "all", "runsc"
			s.RestartPolicy, s.PullPolicy, s.OnLogLimit, s.Entrypoint = "on-failure", "if-not-present", "kill", "skip"
		}, ""},
		{"a command without a program", func(s *agboxv1.CreateSpec) { s.Command = []string{"", "a\x00"} },
			"command[0]: must name a program; command[1]: NUL"},
		{"a command of one huge argument", func(s *agboxv1.CreateSpec) { s.Command = []string{"a", strings.Repeat("x", 128<<10)} },
			"command[1]: limit"},
		{"a relative working_dir", func(s *agboxv1.CreateSpec) { s.WorkingDir = "x" }, "working_dir: absolute"},
		{"a working_dir that leads upwards", func(s *agboxv1.CreateSpec) { s.WorkingDir = "/a/../b" }, `working_dir: write "/b"`},
		{"a working_dir of ours", func(s *agboxv1.CreateSpec) { s.WorkingDir = "/run/agbox/ctl" }, "working_dir: agboxd's own"},
		{"ports out of range", func(s *agboxv1.CreateSpec) {
			s.Ports = []*agboxv1.PortSpec{{}, {ContainerPort: 65536, HostPort: 65536, Protocol: "sctp"}}
		}, "ports[0].container_port: 1 to 65535; ports[1].container_port: 1 to; ports[1].host_port: 0 (the engine; ports[1].protocol: \"tcp\", \"udp\""},
		{"a container port twice", func(s *agboxv1.CreateSpec) {
			s.Ports = []*agboxv1.PortSpec{{ContainerPort: 80, HostPort: 1}, {ContainerPort: 80, HostPort: 2, Protocol: "tcp"}}
		}, "ports[1].container_port: 80/tcp is published by ports[0] already"},
		{"a host port twice", func(s *agboxv1.CreateSpec) {
			s.Ports = []*agboxv1.PortSpec{{ContainerPort: 1, HostPort: 9}, {ContainerPort: 2, HostPort: 9}, {ContainerPort: 3, HostPort: 9, Protocol: "udp"}}
		}, "ports[1].host_port: 9/tcp is already published by ports[0]"},
		{"too many ports", func(s *agboxv1.CreateSpec) { s.Ports = make([]*agboxv1.PortSpec, 129) }, "ports: limit is 128"},
		{"too little of everything", func(s *agboxv1.CreateSpec) {
			s.CpuLimit, s.MemoryLimit, s.DiskLimit, s.PidsLimit = 0.001, "1m", "0", 63
		}, "cpu_limit: 0.01 to 1024; memory_limit: out of range; pids_limit: 64 to 4194304; disk_limit: out of range"},
		{"too much of everything", func(s *agboxv1.CreateSpec) {
			s.CpuLimit, s.MemoryLimit, s.DiskLimit, s.PidsLimit = 1025, "2048t", "999999999999999999p", 4194305
		}, "cpu_limit: 0.01 to 1024; memory_limit: out of range; pids_limit: 64 to; disk_limit: out of range"},
		{"less than nothing", func(s *agboxv1.CreateSpec) { s.CpuLimit = -1 }, "cpu_limit: 0.01 to 1024"},
		{"no number", func(s *agboxv1.CreateSpec) { s.CpuLimit = math.NaN() }, "cpu_limit: 0.01 to 1024"},
		{"no end", func(s *agboxv1.CreateSpec) { s.CpuLimit = math.Inf(1) }, "cpu_limit: 0.01 to 1024"},
		{"capabilities", func(s *agboxv1.CreateSpec) {
			s.Security = &agboxv1.SecuritySpec{CapabilitiesAdd: []string{"SYS_PTRACE", "NET_RAW"}, Seccomp: "unconfined"}
		}, ""},
		{"no capabilities, and one twice", func(s *agboxv1.CreateSpec) {
			s.Security = &agboxv1.SecuritySpec{CapabilitiesAdd: []string{"NET_RAW", "CAP_KILL", "NET_RAW", "ALL"}}
		}, `security.capabilities_add: "ALL" is no capability; security.capabilities_add: "CAP_KILL" is no capability; security.capabilities_add: "NET_RAW" is listed twice`},
		{"words that are not known", func(s *agboxv1.CreateSpec) {
			s.RestartPolicy, s.PullPolicy, s.OnLogLimit, s.Runtime, s.Entrypoint = "Always", "Never", "stop", "/bin/sh", "yes"
			s.Security = &agboxv1.SecuritySpec{Profile: "root", Seccomp: "off"}
		}, `restart_policy: "never", "on-failure", "always"; pull_policy: "if-not-present"; runtime: not the name; on_log_limit: "drop"; security.profile: "standard", "hardened"; security.seccomp: "unconfined"; entrypoint: "auto", "run", "skip"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := &agboxv1.CreateSpec{Image: "a"}
			tc.change(spec)
			check(t, validate.Create(spec), tc.want)
		})
	}
}

func TestUsers(t *testing.T) {
	for user, ok := range map[string]bool{
		"": true, "agbox": true, "0": true, "0:0": true, "1000:users": true, "a.b-c_D$": true, "2147483647": true, "9lives": true,
		"-a": false, ":": false, "a:": false, ":0": false, "a:-b": false, "a:b:c": false, "a b": false, "a\n": false, "a/b": false,
		"2147483648": false, "0:4294967295": false, "99999999999999999999": false, "ä": false,
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
	} {
		if errs := validate.Create(&agboxv1.CreateSpec{Image: "a", User: user}); (len(errs) == 0) != ok {
			t.Errorf("user %q: got %v, want valid %v", user, errs, ok)
		}
	}
}

func TestMemoryBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "16777216": 16 << 20, "16m": 16 << 20, "16 MiB": 16 << 20, "1.5g": 3 << 29, "2G": 2 << 30, "1TB": 1 << 40, "1pib": 1 << 50, "33554432b": 32 << 20,
		"16777215": -1, "1025t": -1, "-1": -1, "-1g": -1, "1e9": -1, "0x1p30": -1, "g": -1, "1gg": -1, "1 g b": -1, " 1g": -1, "1g ": -1, "1..5g": -1,
		"inf": -1, "nan": -1, "999999999999999999p": -1, "1g\n": -1, "0": -1, strings.Repeat("9", 400): -1, "1_000_000_000": -1,
	} {
		got, err := validate.MemoryBytes(text)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestGPUs(t *testing.T) {
	for _, tc := range []struct {
		text    string
		count   int
		devices []string
		ok      bool
	}{
		{"", 0, nil, true},
		{"all", -1, nil, true},
		{"2", 2, nil, true},
		{"0,1", 0, []string{"0", "1"}, true},
		{"GPU-8f3c,MIG-1/2/0", 0, []string{"GPU-8f3c", "MIG-1/2/0"}, true},
		{"0", 0, nil, false},
		{"129", 0, nil, false},
		{"99999999999999999999", 0, nil, false},
		{"-1", 0, nil, false},
		{"a,", 0, nil, false},
		{"a, b", 0, nil, false},
		{"a,a", 0, nil, false},
		{strings.Repeat("a,", 128) + "a", 0, nil, false},
	} {
		count, devices, err := validate.GPUs(tc.text)
		if (err == nil) != tc.ok || count != tc.count || !slices.Equal(devices, tc.devices) {
			t.Errorf("%q: got %d, %v, %v", tc.text, count, devices, err)
		}
	}
}
