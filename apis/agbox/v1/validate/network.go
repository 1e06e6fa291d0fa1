package validate

import (
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/netentry"
)

// Bounds of a network policy. Each combination of ports and protocol is a rule of its own, which every new connection meets.
const (
	maxNetworkEntries      = 10000
	maxNetworkCombinations = 64
)

func checkNetwork(errs *Errors, spec *agboxv1.CreateSpec) {
	n := spec.GetNetwork()
	if n == nil {
		return
	}
	checkWord(errs, "network.mode", n.GetMode(), "open", "internet", "internal", "none")
	errs.addIf(n.GetMode() == "", "network.mode", `is required in a network policy: write "internet", "internal", "none" or "open"`)
	services := len(spec.GetRequiredServices()) + len(spec.GetOptionalServices())
	errs.addIf(n.GetMode() == "none" && services > 0, "network.mode", `"none" cuts the sandbox off from its services: write "internal"`)
	errs.addIf(n.GetMode() == "none" && len(n.GetAllow()) > 0, "network.allow", `has no effect in the mode "none": write "internal"`)
	errs.addIf(n.GetMode() == "none" && len(n.GetDeny()) > 0, "network.deny", `has no effect in the mode "none", which drops everything: leave it out`)
	errs.addIf(n.GetMode() == "open" && len(n.GetAllow()) > 0, "network.allow", `has no effect in the mode "open": write "internet" or "internal"`)
	var allow, deny string // why their entries may not name domains
	if n.GetMode() == "internet" || n.GetMode() == "open" {
		allow = `names a domain, which has no effect in this mode: write "internal", or leave it out`
	}
	if n.GetMode() == "open" {
		deny = `names a domain, and the mode "open" answers for every name: write "internet"`
	}
	names := checkEntries(errs, "network.allow", n.GetAllow(), allow)
	checkEntries(errs, "network.deny", n.GetDeny(), deny)
	errs.addIf(n.GetVerifyNames() && (n.GetMode() != "internal" || len(names) == 0), "network.verify_names",
		`has no effect without the mode "internal" and names in allow: leave it out`)
	for at, e := range names {
		errs.addIf(n.GetVerifyNames() && e.Protocol == "udp", at, "names a domain over UDP, where verify_names can verify no name: leave the entry out, or name addresses")
	}
}

// checkEntries checks a list and returns its entries that name domains, by field; noDomains is why it may have none, or "".
func checkEntries(errs *Errors, field string, entries []string, noDomains string) map[string]netentry.Entry {
	type combination struct {
		ports    netentry.Ports
		protocol string
	}
	seen, domains := map[combination]bool{}, map[string]netentry.Entry{}
	checkEach(errs, field, entries, maxNetworkEntries, func(at, text string) {
		e, err := netentry.Parse(text)
		errs.addIf(err != nil, at, "%s %v", short(text), err)
		errs.addIf(e.Domain != "" && noDomains != "", at, "%s %s", short(text), noDomains)
		errs.addIf(field == "network.deny" && e.Domain != "" && (e.Protocol != "" || e.Ports.First > 0), at,
			"%s names a domain with ports, and a denied name has no address at all: leave the ports out", short(text))
		seen[combination{e.Ports, e.Protocol}] = true
		if err == nil && e.Domain != "" {
			domains[at] = e
		}
	})
	errs.addIf(len(seen) > maxNetworkCombinations, field, "has %d different combinations of ports and protocol; the limit is %d: use ranges of ports",
		len(seen), maxNetworkCombinations)
	return domains
}
