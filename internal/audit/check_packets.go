package audit

import (
	"cmp"
	"slices"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// The modes of a network policy.
const (
	modeOpen     = "open"
	modeInternet = "internet"
	modeInternal = "internal"
	modeNone     = "none"
)

// listsNeeded are the lists that a mode needs at least, and whether no packet gets past the end of its chain.
var listsNeeded = map[string]map[string]bool{
	modeOpen:     {"from": false, "input": false}, // with entries of deny
	modeInternet: {"from": false, "input": true},
	modeInternal: {"from": true, "input": true},
	modeNone:     {"from": true, "to": true, "input": true, "output": true},
}

// modeOf returns the mode of a sandbox, and whether it needs rules.
func modeOf(sb *sandbox) (mode string, confined bool) {
	policy := sb.spec.GetNetwork()
	mode = cmp.Or(policy.GetMode(), sb.desired.GetConfinement().GetNetworkMode(), modeOpen)
	return mode, mode != modeOpen || len(policy.GetDeny()) > 0
}

// bridgeOf returns the name of the interface that the engine makes for a network.
func bridgeOf(networkID string) string { return "br-" + networkID[:min(12, len(networkID))] }

// confinedInKernel checks I24 for a live sandbox.
func (a *auditor) confinedInKernel(sb *sandbox, state agboxv1.SandboxState, p parts) {
	if sb.gone() || a.packets == nil || a.packets.unchecked != "" {
		return
	}
	mode, confined := modeOf(sb)
	say := a.about(flux, "I24", sandboxName(sb), sb.stamp())
	for _, n := range p.networks {
		bridge := bridgeOf(n.ID)
		lists := a.packets.lists(bridge)
		switch {
		case !confined:
			say.when(len(lists) > 0, "its network is %s, and there are rules of its bridge %s: %s", mode, bridge, strings.Join(lists, ", "))
		case state != ready && state != paused: // they are set before anything starts
		case !a.packets.interfaces[bridge]:
			a.report(note, "I24", sandboxName(sb), "", "its network is %s; the rules are not checked: its bridge %s is no interface here", mode, bridge)
		default:
			a.rulesOf(say, mode, bridge)
		}
	}
}

// rulesOf checks that the rules of a bridge are called, and end as the mode says.
func (a *auditor) rulesOf(say saying, mode, bridge string) {
	needed, known := listsNeeded[mode]
	say.when(!known, "its network mode is %q", mode)
	for list, closed := range needed {
		to := a.packets.jumps[list][bridge]
		c, exists := a.packets.chains[to]
		switch {
		case to == "" || !exists || c.rules == 0:
			say("its network is %s, and no rules of the list "+list+" hold for its bridge %s", mode, bridge)
		case !a.packets.called[list]:
			say("its network is %s, and the kernel does not look up the list "+list+" for its bridge %s", mode, bridge)
		case closed && !a.packets.closed(to):
			say("its network is %s, and packets get past the rules of the list "+list+" for its bridge %s", mode, bridge)
		}
	}
	for _, list := range a.packets.lists(bridge) {
		say.when(a.packets.chains[a.packets.jumps[list][bridge]].accepts, "its network is %s, and a rule of the list "+list+" for its bridge %s accepts packets", mode, bridge)
	}
}

// leftRules checks I24 for bridges that no live sandbox has: several daemons share the table, so only a record says whose one is.
func (a *auditor) leftRules() {
	if a.packets == nil {
		return
	}
	owners, anyConfined := map[string]*sandbox{}, false
	for _, sb := range a.records.sandboxes {
		if sb.desired == nil {
			continue
		}
		_, confined := modeOf(sb)
		anyConfined = anyConfined || confined && !sb.gone()
		if id := sb.desired.GetObjects().GetNetworkId(); id != "" {
			owners[bridgeOf(id)] = sb
		}
	}
	if a.packets.unchecked != "" {
		a.about(note, "I24", "packet filter", "").when(anyConfined, "the rules of network policies are not checked: %s", a.packets.unchecked)
		return
	}
	present := map[string]bool{}
	for _, n := range a.world.networks {
		present[bridgeOf(n.ID)] = true
	}
	all := a.packets.bridges()
	for bridge := range all {
		sb := owners[bridge]
		switch {
		case sb != nil && sb.gone():
			a.report(a.leftover(sb.id), "I24", sandboxName(sb), sb.stamp(), "it is DELETED, and there are rules of its bridge %s: %s", bridge,
				strings.Join(a.packets.lists(bridge), ", "))
		case sb == nil && !present[bridge] && !a.packets.interfaces[bridge]:
			a.report(note, "I24", "packet filter", "", "the bridge %s is no interface, and no record of this database names it: a daemon removes its rules at a resync", bridge)
		}
	}
}

// rootVolumes checks I25.
func (a *auditor) rootVolumes() {
	for _, v := range a.world.roots {
		id := v.Labels[labelSandbox]
		sb, object := a.records.sandboxes[id], "volume "+v.Name[:min(12, len(v.Name))]
		switch {
		case (sb == nil || sb.desired == nil || sb.gone()) && a.records.sandboxIDs[id]:
			a.report(a.leftover(id), "I25", object, "", "it is a part of the root of sandbox %s, which is deleted", id)
			continue
		case sb == nil || sb.desired == nil:
			a.report(flux, "I25", object, "", "it is a part of the root of sandbox %q, which is not on record", id)
			continue
		}
		say := a.about(flux, "I25", object, sb.stamp())
		say.when(!sb.spec.GetSecurity().GetReadOnlyRoot(), "it is a part of the root of sandbox %s, whose root is not read-only", id)
		say.when(slices.ContainsFunc(a.world.containers, func(c container) bool { return c.mounts(v.Name) && c.sandbox() != id }),
			"it is a part of the root of sandbox %s, and a container of another sandbox mounts it", id)
	}
}
