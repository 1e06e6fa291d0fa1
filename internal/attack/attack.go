// Package attack is the self-test of a sandbox: package try is what is tried inside, package judge what that means.
package attack

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// Verb is the verb of agbox-shim that tries everything. Its arguments are targets, and it prints one Result in JSON on each line.
const Verb = "attack"

// The names of the checks. The first four are also the kinds of targets.
const (
	Host     = "host"     // an address of the sandbox's host; the shim adds its default gateway
	Metadata = "metadata" // of clouds; the shim knows them
	LAN      = "lan"      // the next hop of the host's default route
	Sandbox  = "sandbox"  // an address in the network of another sandbox

	DNS          = "dns" // as a target: a server that the engine asks
	Capabilities = "capabilities"
	Setuid       = "setuid"
	Syscalls     = "syscalls"
	Packets      = "packets"
	Mount        = "mount"
	Devices      = "devices"
	Namespaces   = "namespaces"
	Kernel       = "kernel"
	Memory       = "memory"
	Settings     = "settings"
	Cgroups      = "cgroups"
	Processes    = "processes"
	Pids         = "pids"
	MemoryLimit  = "memory_limit"
	DiskLimit    = "disk_limit"
	Engine       = "engine"
	Agbox        = "agbox"
)

// MaxTargets limits the targets of one attack: each gets a packet at each of a dozen ports.
const MaxTargets = 64

// Target is an address that a sandbox may not reach.
type Target struct {
	Kind    string
	Address netip.Addr
}

// String returns the target as an argument of Verb: KIND=ADDRESS.
func (t Target) String() string { return t.Kind + "=" + t.Address.String() }

// ParseTarget is the inverse of String.
func ParseTarget(text string) (Target, error) {
	kind, address, _ := strings.Cut(text, "=")
	a, err := netip.ParseAddr(address)
	if err != nil {
		return Target{}, fmt.Errorf("target %q: %w", text, err)
	}
	return Target{Kind: kind, Address: a}, nil
}

// Flood is a limit that the self-test tries to exceed: one of Pids, MemoryLimit and DiskLimit.
type Flood struct {
	Check string
	// Limit is in processes or bytes. 0, of Pids only: the one that the sandbox sees.
	Limit uint64
}

// The highest limits that are tried, and how far beyond a limit a flood goes before it gives up.
const (
	MostProcesses = 8192
	MostMemory    = 2 << 30
	MostDisk      = 1 << 30

	MoreProcesses = 16
	MoreBytes     = 64 << 20
)

const floodFlag = "--flood="

// String returns the flood as an argument of Verb: --flood=CHECK:LIMIT.
func (f Flood) String() string { return fmt.Sprintf("%s%s:%d", floodFlag, f.Check, f.Limit) }

// ParseFlood is the inverse of String; ok is false for an argument that is no flood at all. Errors: the flood exceeds what is tried.
func ParseFlood(text string) (f Flood, ok bool, err error) {
	text, ok = strings.CutPrefix(text, floodFlag)
	if !ok {
		return f, false, nil
	}
	check, limit, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(limit, 10, 64)
	if most, known := Most[check]; err != nil || !known || n > most {
		return f, true, fmt.Errorf("flood %q: the checks with a limit are %s, %s and %s, with at most %d processes, %d and %d bytes", text,
			Pids, MemoryLimit, DiskLimit, uint64(MostProcesses), uint64(MostMemory), uint64(MostDisk))
	}
	return Flood{Check: check, Limit: n}, true, nil
}

// Most is the highest limit that is tried, by check.
var Most = map[string]uint64{Pids: MostProcesses, MemoryLimit: MostMemory, DiskLimit: MostDisk}

// Command returns the command that a sandbox runs for its self-test.
func Command(targets []string, floods []Flood) []string {
	command := append([]string{execjournal.ContainerShim, Verb}, targets...)
	for _, f := range floods {
		command = append(command, f.String())
	}
	return command
}

// Result is the outcome of one check inside a sandbox.
type Result struct {
	// Check is the name of one of Checks.
	Check string `json:"check"`
	// Done is what succeeded.
	Done []Success `json:"done,omitempty"`
	// Tried is the number of things that were tried. 0: there was nothing to try.
	Tried int `json:"tried"`
	// Limit is the limit that the sandbox sees, in processes or bytes; 0: none.
	Limit uint64 `json:"limit,omitempty"`
	// Why says why nothing was tried, or what refused it; it may be empty.
	Why string `json:"why,omitempty"`
}

// Success is a thing that succeeded.
type Success struct {
	// What is it, for users: "10.0.0.1:22/tcp answers".
	What string `json:"what"`
	// To is what was reached, for a check of the network; Protocol is "tcp" or "udp".
	To       netip.AddrPort `json:"to,omitzero"`
	Protocol string         `json:"protocol,omitempty"`
	// Answers: a service answers there, and not only the kernel.
	Answers bool `json:"answers,omitempty"`
}

// ParseResults reads the output of Verb.
func ParseResults(output []byte) (all []Result, err error) {
	for line := range strings.Lines(string(output)) {
		var r Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("the self-test printed %q: %w", line, err)
		}
		all = append(all, r)
	}
	return all, nil
}
