package inspect_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/agbox/agbox/controller/inspect"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/firewall"
)

func TestLimits(t *testing.T) {
	good := dockerx.Info{
		Version: "28.0.0", APIVersion: "1.50", StorageDriver: "btrfs", Driver: "btrfs", DataRoot: "/var/lib/docker", KernelVersion: "6.12", System: "Debian",
		CPULimit: true, MemoryLimit: true, SwapLimit: true, PidsLimit: true, DiskLimit: true, GPUs: true, StartInterval: true, LiveRestore: true,
		CgroupVersion: "2", Freezes: true, PrivateCgroups: true, SeccompProfile: "builtin", UsersRemapped: true, RootUID: 100000, Runtimes: []string{"runc", "runsc"}, DefaultRuntime: "runc",
	}
	safe := inspect.Defaults{Profile: "hardened", NetworkMode: "internet", MemoryLimit: 1}
	for name, tc := range map[string]struct {
		change func(*dockerx.Info, *inspect.Defaults)
		// check is the one that the change concerns, status its status, and text a part of its text.
		check, status, text string
	}{
		"no CPU limit":       {func(i *dockerx.Info, _ *inspect.Defaults) { i.CPULimit = false }, "cpu_limit", "warning", "use all processors"},
		"no memory limit":    {func(i *dockerx.Info, _ *inspect.Defaults) { i.MemoryLimit = false }, "memory_limit", "warning", "controller memory"},
		"no limit of swap":   {func(i *dockerx.Info, _ *inspect.Defaults) { i.SwapLimit = false }, "memory_limit", "warning", "swapaccount=1"},
		"no default memory":  {func(_ *dockerx.Info, d *inspect.Defaults) { d.MemoryLimit = 0 }, "memory_limit", "ok", "runtime.memory_limit"},
		"no pids limit":      {func(i *dockerx.Info, _ *inspect.Defaults) { i.PidsLimit = false }, "pids_limit", "warning", "controller pids"},
		"overlay2 on ext4":   {func(i *dockerx.Info, _ *inspect.Defaults) { i.DiskLimit, i.StorageDriver = false, "overlay2 on extfs" }, "disk_limit", "warning", "overlay2 on extfs"},
		"overlay2 on xfs":    {func(i *dockerx.Info, _ *inspect.Defaults) { i.Driver = "overlay2" }, "disk_limit", "ok", "pquota"},
		"no GPUs":            {func(i *dockerx.Info, _ *inspect.Defaults) { i.GPUs = false }, "gpus", "ok", "are refused"},
		"an older API":       {func(i *dockerx.Info, _ *inspect.Defaults) { i.StartInterval, i.APIVersion = false, "1.41" }, "start_interval", "warning", "API 1.41"},
		"no live-restore":    {func(i *dockerx.Info, _ *inspect.Defaults) { i.LiveRestore = false }, "live-restore", "warning", `"live-restore": true`},
		"cgroup v1":          {func(i *dockerx.Info, _ *inspect.Defaults) { i.CgroupVersion, i.PrivateCgroups = "1", false }, "cgroups", "warning", "cgroup version 2"},
		"v1, but private":    {func(i *dockerx.Info, _ *inspect.Defaults) { i.CgroupVersion = "1" }, "cgroups", "ok", "Version 1."},
		"v2, but the host's": {func(i *dockerx.Info, _ *inspect.Defaults) { i.PrivateCgroups = false }, "cgroups", "ok", "Version 2."},
		"no seccomp":         {func(i *dockerx.Info, _ *inspect.Defaults) { i.SeccompProfile = "" }, "seccomp", "warning", "with seccomp"},
		"seccomp unconfined": {func(i *dockerx.Info, _ *inspect.Defaults) { i.SeccompProfile = "unconfined" }, "seccomp", "warning", "seccomp-profile"},
		"seccomp of a file":  {func(i *dockerx.Info, _ *inspect.Defaults) { i.SeccompProfile = "/etc/x.json" }, "seccomp", "ok", "/etc/x.json"},
		"root is root":       {func(i *dockerx.Info, _ *inspect.Defaults) { i.UsersRemapped = false }, "users", "warning", "user 0 of the host"},
		"remapped":           {func(*dockerx.Info, *inspect.Defaults) {}, "users", "ok", "user 100000 of the host"},
		"remapped to whom?":  {func(i *dockerx.Info, _ *inspect.Defaults) { i.RootUID = 0 }, "users", "warning", "no sandbox can start"},
		"rootless":           {func(i *dockerx.Info, _ *inspect.Defaults) { i.Rootless = true }, "users", "warning", "the engine's user"},
		"another's rootless": {func(i *dockerx.Info, _ *inspect.Defaults) { i.Rootless, i.OtherUser = true, 1000 }, "users", "problem", "as that user"},
		"no control groups":  {func(i *dockerx.Info, _ *inspect.Defaults) { i.Freezes = false }, "cgroups", "warning", "pause, on_timeout"},
		"runsc":              {func(*dockerx.Info, *inspect.Defaults) {}, "runtimes", "ok", "runtime: runsc."},
		"runsc by default":   {func(i *dockerx.Info, _ *inspect.Defaults) { i.DefaultRuntime = "runsc" }, "runtimes", "ok", "runsc is the default"},
		"runc only":          {func(i *dockerx.Info, _ *inspect.Defaults) { i.Runtimes = []string{"runc"} }, "runtimes", "ok", "register gVisor"},
		"standard":           {func(_ *dockerx.Info, d *inspect.Defaults) { d.Profile = "standard" }, "security.profile", "warning", `"hardened"`},
		"nothing to loosen":  {func(*dockerx.Info, *inspect.Defaults) {}, "security.allow", "ok", "no spec"},
		"loosened":           {func(_ *dockerx.Info, d *inspect.Defaults) { d.SecurityAllow = []string{"NET_RAW"} }, "security.allow", "warning", "NET_RAW"},
		"no profile":         {func(_ *dockerx.Info, d *inspect.Defaults) { d.Profile = "" }, "security.profile", "warning", "standard:"},
		"open":               {func(_ *dockerx.Info, d *inspect.Defaults) { d.NetworkMode = "open" }, "runtime.network_mode", "warning", `"internet"`},
		"no mode":            {func(_ *dockerx.Info, d *inspect.Defaults) { d.NetworkMode = "" }, "runtime.network_mode", "warning", "open:"},
		"internal":           {func(_ *dockerx.Info, d *inspect.Defaults) { d.NetworkMode = "internal" }, "runtime.network_mode", "ok", "own services"},
		"none":               {func(_ *dockerx.Info, d *inspect.Defaults) { d.NetworkMode = "none" }, "runtime.network_mode", "ok", "reach nothing"},
		"no packet filter":   {func(_ *dockerx.Info, d *inspect.Defaults) { d.NetworkProblem = "there is none" }, "runtime.network_mode", "warning", "whatever the host reaches"},
		"no packet filter, but required": {
			func(_ *dockerx.Info, d *inspect.Defaults) {
				d.NetworkProblem, d.NetworkRequired = "there is none", true
			}, "runtime.network_mode", "warning", "are refused",
		},
	} {
		info, d := good, safe
		tc.change(&info, &d)
		found := false
		for _, c := range inspect.Limits(info, d) {
			switch {
			case c.GetName() == tc.check:
				found = c.GetStatus() == tc.status && strings.Contains(c.GetText(), tc.text)
				if !found {
					t.Errorf("%s: %v", name, c)
				}
			case c.GetStatus() != "ok":
				t.Errorf("%s also changes %v", name, c)
			}
		}
		if !found {
			t.Errorf("%s: no check %s as wanted", name, tc.check)
		}
	}
}

func TestNothingIsSaidOfAnEngineThatNeverAnswered(t *testing.T) {
	checks := inspect.Limits(dockerx.Info{}, inspect.Defaults{})
	if len(checks) != 3 || checks[0].GetName() != "security.profile" || checks[2].GetName() != "runtime.network_mode" {
		t.Error(checks)
	}
}

func TestUnenforced(t *testing.T) {
	info := dockerx.Info{Version: "28.0.0", CPULimit: true, MemoryLimit: true, SwapLimit: true, PidsLimit: true, DiskLimit: true, CgroupVersion: "2", Freezes: true, SeccompProfile: "builtin"}
	if got := inspect.Unenforced(info); got != "" {
		t.Errorf("an engine that enforces all: %q", got)
	}
	info.DiskLimit, info.CgroupVersion, info.SeccompProfile = false, "1", ""
	if got := inspect.Unenforced(info); !strings.Contains(got, ": disk_limit (watched every 10s), cgroups, seccomp; ") {
		t.Errorf("one that does not: %q", got)
	}
	if got := inspect.Unenforced(dockerx.Info{}); got != "" {
		t.Errorf("one that has never answered: %q", got)
	}
}

func TestHostFirewall(t *testing.T) {
	for _, tc := range []struct {
		closed firewall.Closed
		err    error
		status string
		texts  []string
	}{
		{firewall.Closed{}, nil, inspect.DoctorOK, []string{"iptables-legacy"}},
		{firewall.Closed{Input: []string{"inet filter input", "ip filter INPUT"}}, nil, inspect.DoctorWarning, []string{"inet filter input, ip filter INPUT: packets to this host", "port 10053"}},
		{firewall.Closed{Input: []string{"a"}, Forward: []string{"b"}}, nil, inspect.DoctorWarning, []string{"a: packets to this host", "b: forwarded packets"}},
		{firewall.Closed{}, errors.New("no privilege"), inspect.DoctorWarning, []string{"unknown", "no privilege"}},
	} {
		c := inspect.HostFirewall(tc.closed, tc.err, 10053)
		for _, text := range tc.texts {
			if c.GetName() != "host_firewall" || c.GetStatus() != tc.status || !strings.Contains(c.GetText(), text) {
				t.Errorf("%+v, %v: %v, want %s with %q", tc.closed, tc.err, c, tc.status, text)
			}
		}
	}
}
