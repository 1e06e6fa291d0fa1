// Package privilege has the names of Linux capabilities, and the words by which a configuration allows settings that loosen a security
// profile.
package privilege

import (
	"slices"
	"strconv"
	"strings"
)

// names are the capabilities by their numbers, as in linux/capability.h.
var names = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
	NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE
	SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND
	AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// The words of settings that are not capabilities.
const (
	NoSeccomp     = "seccomp=unconfined"
	NewPrivileges = "no_new_privileges=false"
)

// Capability returns the kernel's number of a capability, or -1 if there is none of that name, such as "NET_RAW".
func Capability(name string) int { return slices.Index(names, name) }

// Name returns the name of a capability by its number in decimal; empty: there is none.
func Name(number string) string {
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= len(names) {
		return ""
	}
	return names[n]
}

// Known reports whether a word names a setting that loosens a profile: a capability, NoSeccomp or NewPrivileges.
func Known(word string) bool {
	return Capability(word) >= 0 || word == NoSeccomp || word == NewPrivileges
}
