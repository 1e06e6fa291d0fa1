// Package profile holds the security profiles of sandboxes: what the engine gives the containers of each. A sandbox keeps the
// profile that was resolved at its accept, so a change of these lists reaches only containers that are made later.
package profile

import (
	"slices"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
)

// The profiles, as specs and the configuration name them. A sandbox that was accepted before there were any has none (empty)
// and what the engine gives by default.
const (
	// Standard: agents install packages, so root and sudo work as the engine's defaults have it.
	Standard = "standard"
	// Hardened: no command has or gains a privilege.
	Hardened = "hardened"
)

// risky is taken from every container: packet sockets to spoof neighbours with, and device files. Package managers need neither.
var risky = []string{"MKNOD", "NET_RAW"}

// forInit is what PID 1 of a hardened sandbox and the supervisors of its execs work with; no command inherits any of it. A test
// of internal/shim removes each in turn and shows what breaks.
//
//	CHOWN         gives the working directory and pipes to the user of commands
//	DAC_OVERRIDE  writes journals into a directory of the daemon's user, enters directories of commands' users, and sets OOM scores
//	KILL          ends commands of other users
//	SETGID        starts commands as their user
//	SETPCAP       empties the bounding set of commands
//	SETUID        as SETGID
var forInit = []string{"CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETPCAP", "SETUID"}

// forServices is what images of servers use before they drop to their own user. A test of this package removes each in turn and shows what
// breaks.
//
//	CHOWN             gives data to the server's user
//	DAC_OVERRIDE      prepares data that only the server's user may read
//	FOWNER            sets permissions of that data
//	KILL              lets the engine's init hand signals on to a program of another user
//	NET_BIND_SERVICE  starts servers whose file has this capability; ports below 1024 are open to all without it
//	SETGID            starts the server as its user
//	SETUID            as SETGID
var forServices = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID"}

// IsHardened reports whether commands start without any capability. A profile that is not known here, as a later release may have
// recorded it, counts as hardened.
func IsHardened(profile string) bool { return profile != "" && profile != Standard }

// Primary returns the security options of the primary container in a profile, as the spec changes it.
func Primary(profile string, spec *agboxv1.SecuritySpec) dockerx.Security {
	s := security(profile, forInit)
	added := spec.GetCapabilitiesAdd()
	s.CapDrop = slices.DeleteFunc(slices.Clone(s.CapDrop), func(c string) bool { return slices.Contains(added, c) })
	s.CapAdd = slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.CapAdd, added))))
	if spec != nil && spec.NoNewPrivileges != nil {
		s.NoNewPrivileges = spec.GetNoNewPrivileges()
	}
	s.ReadOnlyRoot, s.Unconfined = spec.GetReadOnlyRoot(), spec.GetSeccomp() == "unconfined"
	return s
}

// Service returns the security options of service containers in a profile.
func Service(profile string) dockerx.Security { return security(profile, forServices) }

func security(profile string, hardened []string) dockerx.Security {
	switch profile {
	case "":
		return dockerx.Security{}
	case Standard:
		return dockerx.Security{CapDrop: risky}
	}
	return dockerx.Security{NoNewPrivileges: true, CapDrop: []string{"ALL"}, CapAdd: hardened}
}
