// Package judge says what the results of the self-test of a sandbox mean for its spec. Pure.
package judge

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/go-units"

	"github.com/agbox/agbox/apis/netentry"
	"github.com/agbox/agbox/apis/privilege"
	"github.com/agbox/agbox/internal/attack"
	"github.com/agbox/agbox/internal/netrules"
)

// Verdicts.
const (
	Held    = "held"     // nothing succeeded
	Allowed = "allowed"  // something succeeded that the spec or the profile allows
	Hole    = "HOLE"     // something succeeded that should not
	Untried = "untested" // there was nothing to try
)

// Spec is what decides what a sandbox may do.
type Spec struct {
	// Mode is that of its network policy.
	Mode string
	// Allow are the entries of its policy.
	Allow []netentry.Entry
	// Servers are the DNS servers that the engine asks: open on their port in the mode internet, also where they are private.
	Servers []netip.Addr
	// Hardened: its profile is not standard.
	Hardened bool
	// Loosened are the settings by which its spec loosens the profile, in the words of the package privilege.
	Loosened []string
	// Root: its commands run as root.
	Root bool
	// Runtime has a kernel of its own, such as gVisor; empty: the kernel is the host's.
	Runtime string
	// Pids, MemoryBytes and DiskBytes are its limits, with their defaults if the client knows them; 0: none.
	Pids, MemoryBytes, DiskBytes uint64
	// DiskWatched: the engine does not enforce the disk limit, and agboxd measures.
	DiskWatched bool
	// Flooded: its limits were tried, where Floods says so.
	Flooded bool
}

const watched = "the engine does not enforce disk_limit: agboxd measures, and stops the sandbox when it has written more"

// Floods returns the limits that a flood may try. Where there is none, nothing is flooded.
func (s Spec) Floods() (floods []attack.Flood) {
	for _, f := range []attack.Flood{{Check: attack.Pids, Limit: s.Pids}, {Check: attack.MemoryLimit, Limit: s.MemoryBytes}, {Check: attack.DiskLimit, Limit: s.DiskBytes}} {
		if s.unflooded(f.Check) == "" {
			floods = append(floods, f)
		}
	}
	return floods
}

// unflooded says why no flood tries a limit; empty: one does, or the check is about no limit.
func (s Spec) unflooded(check string) string {
	limit, ok := map[string]uint64{attack.Pids: s.Pids, attack.MemoryLimit: s.MemoryBytes, attack.DiskLimit: s.DiskBytes}[check]
	switch {
	case !ok:
		return ""
	case s.Runtime != "":
		return "not flooded: a limit that is reached may end the whole sandbox on the runtime " + s.Runtime
	case limit == 0 && check != attack.Pids: // every sandbox has a limit of processes
		return "not flooded: there is no limit"
	case limit > attack.Most[check] && check == attack.Pids:
		return fmt.Sprintf("not flooded: the limit is above %d", attack.Most[check])
	case limit > attack.Most[check]:
		return "not flooded: the limit is above " + units.BytesSize(float64(attack.Most[check]))
	case check == attack.DiskLimit && s.DiskWatched:
		return "not flooded: " + watched
	}
	return ""
}

// reaches reports whether the policy names what a check reached.
func (s Spec) reaches(check string, r attack.Success) bool {
	if s.Mode == netrules.Internet && r.To.Port() == 53 && slices.Contains(s.Servers, r.To.Addr()) {
		return true
	}
	return r.To.IsValid() && slices.ContainsFunc(s.Allow, func(e netentry.Entry) bool {
		to := e.Host && check == attack.Host || e.Prefix.IsValid() && e.Prefix.Contains(r.To.Addr()) && check != attack.Host && check != attack.Sandbox
		return to && (e.Protocol == "" || e.Protocol == r.Protocol) && (e.Ports.First == 0 || e.Ports.First <= r.To.Port() && r.To.Port() <= e.Ports.Last)
	})
}

// Check is one line of the self-test.
type Check struct {
	Name string
	// What is tried, for users.
	What string
	// open: it may succeed in such a sandbox, for the reason.
	open func(s Spec) string
}

// Checks are all checks, in the order in which they are shown.
var Checks = []Check{
	{attack.Host, "connect to addresses of the host", network},
	{attack.Metadata, "connect to metadata services of clouds", network},
	{attack.LAN, "connect to the router of the host's network", network},
	{attack.Sandbox, "connect to other sandboxes", network},
	{attack.DNS, "ask DNS servers for the root's name servers", names},
	{attack.Capabilities, "have capabilities", func(s Spec) string {
		if s.Root && !s.Hardened {
			return "commands run as root"
		}
		return s.loosened(isCapability)
	}},
	{attack.Setuid, "gain privileges by setuid programs", func(s Spec) string {
		if s.Hardened {
			return s.loosened(func(word string) bool { return isCapability(word) || word == privilege.NewPrivileges })
		}
		return "the profile is standard"
	}},
	{attack.Syscalls, "make system calls without a filter", func(s Spec) string {
		return cmp.Or(kernel(s), s.loosened(func(word string) bool { return word == privilege.NoSeccomp }))
	}},
	{attack.Packets, "open packet sockets", func(s Spec) string {
		return cmp.Or(kernel(s), s.loosened(func(word string) bool { return word == "NET_RAW" }))
	}},
	{attack.Mount, "mount a file system", hostKernel},
	{attack.Devices, "make a device file, or open a disk", hostKernel},
	{attack.Namespaces, "make a user namespace", hostKernel},
	{attack.Kernel, "load code into the kernel: modules, BPF, a new kernel", hostKernel},
	{attack.Memory, "read memory and messages of the kernel", hostKernel},
	{attack.Settings, "write settings of the kernel", hostKernel},
	{attack.Cgroups, "write limits of cgroups", hostKernel},
	{attack.Processes, "share processes or memory with the host", kernel},
	{attack.Engine, "find the engine's socket", never},
	{attack.Agbox, "change agboxd's files, or speak to it as PID 1", never},
	{attack.Pids, "start processes without limit", kernel},
	{attack.MemoryLimit, "use memory without limit", func(s Spec) string {
		return cmp.Or(kernel(s), without(s.MemoryBytes, attack.MemoryLimit))
	}},
	{attack.DiskLimit, "write files without limit", func(s Spec) string {
		return cmp.Or(kernel(s), without(s.DiskBytes, attack.DiskLimit))
	}},
}

func without(limit uint64, name string) string {
	if limit == 0 {
		return "the spec has no " + name
	}
	return ""
}

func never(Spec) string { return "" }

func kernel(s Spec) string {
	if s.Runtime != "" {
		return "the kernel is that of the runtime " + s.Runtime
	}
	return ""
}

// hostKernel is kernel for what capabilities and system calls beyond those of an engine's default give.
func hostKernel(s Spec) string {
	return cmp.Or(kernel(s), s.loosened(func(word string) bool { return word != privilege.NewPrivileges && !slices.Contains(harmless, word) }))
}

// harmless are capabilities that give nothing outside of the container.
var harmless = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

func isCapability(word string) bool { return privilege.Capability(word) >= 0 }

// loosened names the settings that loosen the profile and that a check is about; empty: there are none.
func (s Spec) loosened(about func(word string) bool) string {
	words := slices.DeleteFunc(slices.Clone(s.Loosened), func(word string) bool { return !about(word) })
	if len(words) == 0 {
		return ""
	}
	return "the spec loosens the profile by " + strings.Join(words, ", ")
}

func network(s Spec) string {
	if s.Mode == netrules.Open {
		return "the network mode is open"
	}
	return ""
}

// names: questions go to the servers that the engine asks, unless they are answered by name.
func names(s Spec) string {
	if s.Mode == netrules.Open || s.Mode == netrules.Internet {
		return "the network mode is " + s.Mode
	}
	return ""
}

// Row is the verdict on one check.
type Row struct {
	Check, What, Verdict string
	// Why is what succeeded, and why it may.
	Why string
}

// Judge returns a row for each check. A check without a result is a hole: the self-test did not end in order.
func Judge(s Spec, results []attack.Result) (rows []Row) {
	for _, c := range Checks {
		row := Row{Check: c.Name, What: c.What, Verdict: Hole, Why: "no result"}
		of := func(check string) int {
			return slices.IndexFunc(results, func(r attack.Result) bool { return r.Check == check })
		}
		i := of(c.Name)
		switch {
		case i < 0 && slices.Contains(limits, c.Name) && of(attack.Pids) >= 0:
			row.Verdict, row.Why = Untried, "the agbox-shim of this sandbox is older than this check"
		case i >= 0 && slices.Contains(limits, c.Name):
			row.Verdict, row.Why = c.judgeLimit(s, results[i])
		case i >= 0:
			row.Verdict, row.Why = c.judge(s, results[i])
		}
		rows = append(rows, row)
	}
	return rows
}

func (c Check) judge(s Spec, r attack.Result) (verdict, why string) {
	beyond := slices.DeleteFunc(slices.Clone(r.Done), func(one attack.Success) bool { return s.reaches(c.Name, one) })
	switch reason := c.open(s); {
	case r.Tried == 0:
		return Untried, "there was nothing to try"
	case len(r.Done) == 0:
		return Held, ""
	case reason != "":
		return Allowed, reason + ": " + listed(r.Done)
	case len(beyond) == 0:
		return Allowed, "the network policy allows it: " + listed(r.Done)
	}
	return Hole, listed(beyond)
}

var limits = []string{attack.Pids, attack.MemoryLimit, attack.DiskLimit}

// judgeLimit is judge for a check of a limit: one that is above that of the spec is a hole, too.
func (c Check) judgeLimit(s Spec, r attack.Result) (verdict, why string) {
	wanted := map[string]uint64{attack.Pids: s.Pids, attack.MemoryLimit: s.MemoryBytes, attack.DiskLimit: s.DiskBytes}[c.Name]
	show := func(n uint64) string { return units.BytesSize(float64(n)) }
	if c.Name == attack.Pids {
		show = func(n uint64) string { return strconv.FormatUint(n, 10) }
	}
	var notes []string
	if s.Flooded {
		notes = append(notes, s.unflooded(c.Name))
	}
	isAbove := wanted > 0 && r.Limit > wanted
	switch {
	case c.Name != attack.DiskLimit:
		if isAbove {
			r.Done = append(r.Done, attack.Success{What: fmt.Sprintf("the limit is %s, and that of the spec %s", show(r.Limit), show(wanted))})
		}
	case len(r.Done) > 0: // by a flood
	case r.Tried > 0 && wanted == 0:
		r.Done = []attack.Success{{What: "the file system has " + show(r.Limit)}}
	case isAbove && !s.DiskWatched:
		r.Tried, r.Why = 0, cmp.Or(r.Why, "the file system, of "+show(r.Limit)+", does not show the limit; --floods tries it")
	case isAbove:
		r.Tried, r.Why = 0, cmp.Or(r.Why, watched)
		notes = nil
	}
	verdict, why = c.judge(s, r)
	if verdict == Untried && r.Why != "" {
		why = r.Why
	} else {
		notes = append(notes, r.Why)
	}
	return verdict, strings.Join(slices.DeleteFunc(append([]string{why}, notes...), func(text string) bool { return text == "" }), "; ")
}

// listed names what succeeded: of each address one port, one that answers if there is one.
func listed(all []attack.Success) string {
	var texts []string
	for len(all) > 0 {
		first := all[0]
		isOther := func(s attack.Success) bool { return !s.To.IsValid() || s.To.Addr() != first.To.Addr() }
		same := slices.DeleteFunc(slices.Clone(all[1:]), isOther)
		all = slices.DeleteFunc(slices.Clone(all[1:]), func(s attack.Success) bool { return !isOther(s) })
		text := first.What
		if i := slices.IndexFunc(same, func(s attack.Success) bool { return s.Answers && !first.Answers }); i >= 0 {
			text = same[i].What
		}
		if len(same) > 0 {
			text += fmt.Sprintf(" and %d more ports", len(same))
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
