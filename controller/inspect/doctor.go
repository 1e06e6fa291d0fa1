package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/disklimit"
	"github.com/agbox/agbox/controller/profile"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
)

// The statuses of a DoctorCheck.
const (
	DoctorOK      = "ok"
	DoctorWarning = "warning"
	DoctorProblem = "problem"
)

// Defaults are what the configuration gives sandboxes whose specs say nothing.
type Defaults struct {
	// Profile is empty for standard, NetworkMode for open.
	Profile, NetworkMode string
	// SecurityAllow are the settings by which a spec may loosen its profile.
	SecurityAllow []string
	// NetworkRequired: nothing is created without a network policy where none can be enforced.
	NetworkRequired bool
	// NetworkProblem says why no network policy can be enforced; empty: they can.
	NetworkProblem string
	// MemoryLimit in bytes; 0: none.
	MemoryLimit int64
}

// Limits returns what the engine of info and its kernel are, what they cannot enforce, and which defaults are weaker than they can be. About
// an engine that has never answered it reports no problem.
func Limits(info dockerx.Info, d Defaults) []*agboxv1.DoctorCheck {
	defaults := []*agboxv1.DoctorCheck{defaultProfile(d), loosening(d), defaultNetwork(d)}
	if info.Version == "" {
		return defaults
	}
	facts := []*agboxv1.DoctorCheck{
		ok("docker", fmt.Sprintf("Docker %s, API %s, %s in %s.", info.Version, info.APIVersion, info.StorageDriver, info.DataRoot)),
		ok("kernel", fmt.Sprintf("Linux %s, %s.", info.KernelVersion, info.System)),
	}
	return slices.Concat(facts, specLimits(info, d), isolation(info), defaults)
}

// Unenforced is a sentence about what the engine of info and its kernel cannot enforce; empty: nothing, or no engine has ever answered.
func Unenforced(info dockerx.Info) string {
	if info.Version == "" {
		return ""
	}
	var names []string
	for _, c := range append(specLimits(info, Defaults{}), cgroups(info), seccomp(info)) {
		if c.GetStatus() == DoctorWarning && c.GetName() != "start_interval" { // a setting, and not a limit
			name := c.GetName()
			if name == diskLimitName {
				name += fmt.Sprintf(" (watched every %s)", disklimit.Every)
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "not enforced by this engine and its kernel: " + strings.Join(names, ", ") + "; the checks of that name in agbox doctor say what follows"
}

const enforced = "Enforced."

// specLimits returns a check for each part of a spec that an engine may lack. What the engine cannot hold, agboxd refuses, or watches.
func specLimits(info dockerx.Info, d Defaults) []*agboxv1.DoctorCheck {
	const kernel = "The engine's kernel cannot enforce it: specs with it are refused, and a sandbox can use %s. Boot a kernel with the cgroup controller %s."
	return []*agboxv1.DoctorCheck{
		held(info.CPULimit, "cpu_limit", enforced, fmt.Sprintf(kernel, "all processors", "cpu")),
		memoryLimit(info, d, fmt.Sprintf(kernel, "all memory", "memory")),
		held(info.PidsLimit, "pids_limit", enforced, fmt.Sprintf(kernel, "all process IDs of the host", "pids")),
		diskLimit(info), gpus(info),
		held(info.StartInterval, "start_interval", "Supported.", fmt.Sprintf("Specs with healthcheck.start_interval are refused: it needs API 1.44 (Docker 25), "+
			"and this engine has API %s. Leave it out, or upgrade the engine.", info.APIVersion)),
	}
}

func memoryLimit(info dockerx.Info, d Defaults, lacking string) *agboxv1.DoctorCheck {
	switch {
	case !info.MemoryLimit:
		return warning("memory_limit", lacking)
	case !info.SwapLimit:
		return warning("memory_limit", "The kernel does not limit swap: a sandbox at its memory limit goes on in swap. Boot with swapaccount=1, or turn swap off.")
	case d.MemoryLimit == 0:
		return ok("memory_limit", "Enforced. A sandbox without it can use all memory of the host; runtime.memory_limit sets a default.")
	}
	return ok("memory_limit", enforced)
}

// diskLimitName is the name of the check of disk_limit.
const diskLimitName = "disk_limit"

func diskLimit(info dockerx.Info) *agboxv1.DoctorCheck {
	switch {
	case !info.DiskLimit:
		return warning(diskLimitName, fmt.Sprintf("Watched, not enforced: the engine stores containers by %s. agboxd measures a sandbox that has it about every %s, "+
			"and stops it when it has written more; until then it can fill the engine's disk, and a sandbox without disk_limit at any time. "+
			"To have it enforced, use overlay2 on XFS with the mount option pquota, or btrfs, or ZFS.", info.StorageDriver, disklimit.Every))
	case info.Driver == "overlay2":
		return ok(diskLimitName, fmt.Sprintf("Enforced if %s is mounted with pquota, which the engine does not report; otherwise creates with it fail.", info.DataRoot))
	}
	return ok(diskLimitName, enforced)
}

func gpus(info dockerx.Info) *agboxv1.DoctorCheck {
	if info.GPUs {
		return ok("gpus", "The engine can give GPUs to sandboxes.")
	}
	return ok("gpus", "The engine has none to give: specs with gpus are refused. If the host has GPUs, install the NVIDIA container toolkit.")
}

// isolation returns the checks of what separates a sandbox from its host.
func isolation(info dockerx.Info) []*agboxv1.DoctorCheck {
	return []*agboxv1.DoctorCheck{
		held(info.LiveRestore, "live-restore", "Sandboxes go on while the engine restarts.",
			`The end of the engine ends all sandboxes until they are started again. Set "live-restore": true in the engine's daemon.json, and reload it.`),
		cgroups(info), seccomp(info), users(info), runtimes(info),
	}
}

func cgroups(info dockerx.Info) *agboxv1.DoctorCheck {
	text := "Version " + cmp.Or(info.CgroupVersion, "unknown") + ". "
	if !info.Freezes {
		return warning("cgroups", text+"The engine uses none: no limit holds, agbox top shows nothing, and pause, on_timeout: pause and snapshots of running sandboxes are refused. "+
			"For rootless Docker boot the host with cgroup version 2, and delegate its controllers to the engine's user.")
	}
	if info.PrivateCgroups || info.CgroupVersion == "2" {
		return ok("cgroups", text+"A sandbox sees its own part of them only.")
	}
	return warning("cgroups", text+"Sandboxes are in the host's cgroup namespace: /proc/self/cgroup shows them paths of the host. Boot the host with cgroup version 2.")
}

func seccomp(info dockerx.Info) *agboxv1.DoctorCheck {
	switch p := info.SeccompProfile; p {
	case "":
		return warning("seccomp", "The engine filters no system calls: sandboxes reach all of the kernel. Use an engine and a kernel with seccomp.")
	case "unconfined":
		return warning("seccomp", "The engine is set to filter no system calls: sandboxes reach all of the kernel. Remove seccomp-profile from its daemon.json.")
	case "default", "builtin":
		return ok("seccomp", "The engine's own filter of system calls.")
	default:
		return ok("seccomp", fmt.Sprintf("A filter of system calls of your own: %s.", p))
	}
}

func users(info dockerx.Info) *agboxv1.DoctorCheck {
	switch {
	case info.OtherUser != 0:
		return &agboxv1.DoctorCheck{Name: "users", Status: "problem", Text: fmt.Sprintf("The engine is rootless and runs as user %d of the host, who can't reach the directories "+
			"of agboxd: creates are refused. Run agboxd as that user: docs/engines.md.", info.OtherUser)}
	case info.Rootless:
		return warning("users", "The engine is rootless: root in a sandbox is the engine's user, and has no privileges on the host. That user must be able to reach all mounts, and "+
			"no network policy is enforced: docs/engines.md.")
	case info.UsersRemapped && info.RootUID == 0:
		return warning("users", fmt.Sprintf("The engine remaps users, and its data root %s does not end with whom it makes root: no sandbox can start. "+
			"Remove userns-remap from its daemon.json, or report this.", info.DataRoot))
	case info.UsersRemapped:
		return ok("users", fmt.Sprintf("The engine remaps users: root in a sandbox is user %d of the host, which has no privileges. Mounts of files that are not of its range "+
			"have the user ID 65534 inside: docs/engines.md.", info.RootUID))
	}
	return warning("users", "Root in a sandbox is user 0 of the host; capabilities and seccomp hold it back. "+
		"For code that you do not trust, use the profile hardened or a runtime with a kernel of its own.")
}

// ownKernels are parts of the names under which runtimes are registered that have a kernel of their own.
var ownKernels = []string{"runsc", "gvisor", "kata"}

func hasOwnKernel(runtime string) bool {
	return slices.ContainsFunc(ownKernels, func(part string) bool { return strings.Contains(strings.ToLower(runtime), part) })
}

func runtimes(info dockerx.Info) *agboxv1.DoctorCheck {
	var stronger []string
	for _, name := range info.Runtimes {
		if hasOwnKernel(name) {
			stronger = append(stronger, name)
		}
	}
	switch {
	case hasOwnKernel(info.DefaultRuntime):
		return ok("runtimes", fmt.Sprintf("%s is the default: sandboxes have a kernel of their own.", info.DefaultRuntime))
	case len(stronger) > 0:
		return ok("runtimes", fmt.Sprintf("Sandboxes share the host's kernel, unless their spec has runtime: %s.", strings.Join(stronger, " or ")))
	}
	return ok("runtimes", "Sandboxes share the host's kernel. For a kernel of their own, register gVisor with the engine: docs/engines.md.")
}

func defaultProfile(d Defaults) *agboxv1.DoctorCheck {
	if name := cmp.Or(d.Profile, profile.Standard); !profile.IsHardened(name) {
		return warning("security.profile", name+": commands can become root in their sandbox, with most of Docker's capabilities. For code that you do not trust, "+
			`set security.profile = "hardened", or security: {profile: hardened} in the spec.`)
	}
	return ok("security.profile", d.Profile+": commands have and gain no capabilities.")
}

func loosening(d Defaults) *agboxv1.DoctorCheck {
	const name = "security.allow"
	if len(d.SecurityAllow) == 0 {
		return ok(name, "Nothing: no spec can loosen its profile.")
	}
	return warning(name, fmt.Sprintf("Every client can give its sandbox %s, also in the profile hardened. docs/security.md says what this gives away; "+
		"remove what no sandbox needs.", strings.Join(d.SecurityAllow, ", ")))
}

func defaultNetwork(d Defaults) *agboxv1.DoctorCheck {
	const name = "runtime.network_mode"
	mode := cmp.Or(d.NetworkMode, netrules.Open)
	switch {
	case d.NetworkProblem != "" && mode != netrules.Open && d.NetworkRequired:
		return warning(name, mode+", which cannot be enforced: sandboxes are refused, unless their spec has network: {mode: open}. The check network says why.")
	case d.NetworkProblem != "" && mode != netrules.Open:
		return warning(name, mode+", which cannot be enforced: new sandboxes reach whatever the host reaches. The check network says why; "+
			"runtime.network_required = true refuses them.")
	case mode == netrules.Open:
		return warning(name, `open: sandboxes reach whatever the host reaches. Set runtime.network_mode = "internet", or network in the spec.`)
	case mode == netrules.Internet:
		return ok(name, "internet: sandboxes reach public addresses and DNS only.")
	case mode == netrules.Internal:
		return ok(name, "internal: sandboxes reach their own services only.")
	}
	return ok(name, mode+": sandboxes reach nothing.")
}

// HostFirewall returns the check of what drops packets that network policies let through; err is why that is unknown. dnsPort is that of
// runtime.dns_port.
func HostFirewall(closed firewall.Closed, err error, dnsPort int) *agboxv1.DoctorCheck {
	const name = "host_firewall"
	var texts []string
	if len(closed.Input) > 0 {
		texts = append(texts, fmt.Sprintf("%s: packets to this host are dropped by default. Names in network policies resolve only if port %d (TCP and UDP) on the "+
			"interfaces br-* is let through, and an entry host:PORT needs its port.", strings.Join(closed.Input, ", "), dnsPort))
	}
	if len(closed.Forward) > 0 {
		texts = append(texts, fmt.Sprintf("%s: forwarded packets are dropped by default. Sandboxes reach what their policies allow only if packets from and to the "+
			"interfaces br-* are let through.", strings.Join(closed.Forward, ", ")))
	}
	switch {
	case err != nil:
		return warning(name, "It is unknown whether the host's firewall drops what network policies let through: "+err.Error())
	case len(texts) > 0:
		return warning(name, strings.Join(texts, " "))
	}
	return ok(name, "No chain of nftables drops by default what network policies let through. Rules of iptables-legacy are not seen.")
}

func ok(name, text string) *agboxv1.DoctorCheck {
	return &agboxv1.DoctorCheck{Name: name, Status: DoctorOK, Text: text}
}

func warning(name, text string) *agboxv1.DoctorCheck {
	return &agboxv1.DoctorCheck{Name: name, Status: DoctorWarning, Text: text}
}

func held(holds bool, name, yes, no string) *agboxv1.DoctorCheck {
	if holds {
		return ok(name, yes)
	}
	return warning(name, no)
}
