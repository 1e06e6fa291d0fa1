// Package attack is the self-test of a sandbox: package try is what is tried inside, package judge what that means.
package attack

import (
	"encoding/json"
	"fmt"
	"net/netip"
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

// Command returns the command that a sandbox runs for its self-test.
func Command(targets []string) []string {
	return append([]string{execjournal.ContainerShim, Verb}, targets...)
}

// Result is the outcome of one check inside a sandbox.
type Result struct {
	// Check is the name of one of Checks.
	Check string `json:"check"`
	// Done is what succeeded.
	Done []Success `json:"done,omitempty"`
	// Tried is the number of things that were tried. 0: there was nothing to try.
	Tried int `json:"tried"`
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
