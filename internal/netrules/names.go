package netrules

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/inject"
	"github.com/agbox/agbox/apis/netentry"
)

// filtersNames reports whether a policy needs the forwarder of DNS, because its entries name domains, or connections to some go through it. Error:
// entries name domains in a mode in which they would have no effect.
func filtersNames(mode string, allow, deny, injected []netentry.Entry) (bool, error) {
	isDomain := func(e netentry.Entry) bool { return e.Domain != "" }
	allowed, denied := slices.ContainsFunc(allow, isDomain), slices.ContainsFunc(deny, isDomain)
	if allowed && mode != Internal || denied && mode != Internal && mode != Internet {
		return false, fmt.Errorf("the policy names domains, which have no effect in the mode %q", mode)
	}
	return allowed || denied && mode == Internet || len(injected) > 0 && (mode == Internet || mode == Internal), nil
}

// RulesNames reports whether the policy of a spec that validate accepts decides which names are answered: it names domains, or lets no question out.
func RulesNames(mode string, spec *agboxv1.CreateSpec) bool {
	_, filtered, err := NamesOf(mode, spec.GetNetwork(), inject.Hosts(spec))
	return mode == None || mode == Internal || filtered && err == nil
}

// dns is port 53, and dnsOverTLS port 853, which DNS over QUIC has too.
var (
	dns        = netentry.Ports{First: 53, Last: 53}
	dnsOverTLS = netentry.Ports{First: 853, Last: 853}
)

// outward are the first rules for packets from the sandbox. Where names are filtered, no packet of DNS is forwarded, not even of a flow
// that is older than the policy: what was not redirected would go past the forwarder.
func outward(filtered bool) []Rule {
	if !filtered {
		return []Rule{passEstablished, passOwn}
	}
	rules := []Rule{passOwn}
	for _, ports := range []netentry.Ports{dns, dnsOverTLS} {
		rules = append(rules, Rule{Drop: true, Record: true, Protocol: "tcp", Ports: ports}, Rule{Drop: true, Record: true, Protocol: "udp", Ports: ports})
	}
	return append(rules, passEstablished)
}

// redirect sends questions to the forwarder, whichever server they are for, except those for containers of the sandbox's own network.
func redirect(f Facts) (rules []Rule) {
	if len(f.Pool) > 0 {
		rules = append(rules, Rule{To: Ranges(f.Pool)})
	}
	return append(rules, Rule{Protocol: "tcp", Ports: dns, Redirect: f.Forwarder}, Rule{Protocol: "udp", Ports: dns, Redirect: f.Forwarder})
}

// proxied sends connections to the addresses of names to the forwarder, which passes them on: to the names to whose requests it adds headers, and
// with verify to all that allow has. It leaves to later hooks what entries decide by address.
func proxied(f Facts, allow, deny []netentry.Entry, verify bool) []Rule {
	rules := slices.Concat(unrecorded(destinations(deny, false, false)), toForwarder(NameSets(f.Injected, deny), f.Forwarder))
	if verify {
		rules = slices.Concat(rules, unrecorded(destinations(allow, false, false)), []Rule{{Protocol: "tcp", Ports: dnsOverTLS}},
			toForwarder(NameSets(allow, deny), f.Forwarder))
	}
	return rules
}

func unrecorded(rules []Rule) []Rule {
	for i := range rules {
		rules[i].Record = false
	}
	return rules
}

func toForwarder(sets []NameSet, port uint16) (rules []Rule) {
	for _, set := range sets {
		if set.Protocol != "udp" {
			rules = append(rules, Rule{Record: true, Names: set.ID, Protocol: "tcp", Ports: set.Ports, Redirect: port})
		}
	}
	return rules
}

// forwarder are the rules for the forwarder's port, which serves only what was redirected.
func forwarder(port uint16) (rules []Rule) {
	ports := netentry.Ports{First: port, Last: port}
	for _, p := range []string{"tcp", "udp"} {
		rules = append(rules, Rule{Redirected: true, Protocol: p, Ports: ports}, Rule{Drop: true, Record: true, Protocol: p, Ports: ports})
	}
	return rules
}

// resolved lets packets to the addresses of names pass.
func resolved(sets []NameSet) (rules []Rule) {
	for _, set := range sets {
		for _, p := range protocols(set.Protocol, set.Ports) {
			rules = append(rules, Rule{Record: true, Names: set.ID, Protocol: p, Ports: set.Ports})
		}
	}
	return rules
}

// NameSet is a set of addresses: those that the domains resolve to that allow opens for one combination of ports and protocol.
type NameSet struct {
	// ID is a function of all that decides whether an address belongs to the set. So an address of a former policy is in no set of its
	// successor, unless they agree on that.
	ID string
	// Protocol and Ports are as in an entry.
	Protocol string
	Ports    netentry.Ports
	// Domains are the domains and patterns, sorted.
	Domains []string
}

// NameSets returns the sets of a policy, sorted.
func NameSets(allow, deny []netentry.Entry) []NameSet {
	type key struct {
		protocol string
		ports    netentry.Ports
	}
	sets := map[key]*NameSet{}
	for _, e := range allow {
		if e.Domain == "" {
			continue
		}
		k := key{e.Protocol, e.Ports}
		if sets[k] == nil {
			sets[k] = &NameSet{Protocol: e.Protocol, Ports: e.Ports}
		}
		sets[k].Domains = append(sets[k].Domains, pattern(e))
	}
	var denied []string
	for _, e := range deny {
		if e.Domain != "" {
			denied = append(denied, pattern(e))
		}
	}
	denied = sorted(denied)
	var list []NameSet
	for _, s := range sets {
		s.Domains = sorted(s.Domains)
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %v %q %q", s.Protocol, s.Ports, s.Domains, denied))
		s.ID = hex.EncodeToString(sum[:8])
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b NameSet) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Ports.First, b.Ports.First), cmp.Compare(a.Ports.Last, b.Ports.Last))
	})
	return list
}

func pattern(e netentry.Entry) string {
	if e.Below {
		return "*." + e.Domain
	}
	return e.Domain
}

func sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

// Names says which names a sandbox may ask for, and which addresses they may have.
type Names struct {
	// all: names that no entry covers are answered.
	all         bool
	allow, deny domains
	sets        map[string]NameSet // by ID
	addresses   []Range
}

// domains are the IDs of sets by domain: of the domain itself, and of the names below it.
type domains struct{ exact, below map[string][]string }

// NamesOf returns the names of a policy that validate accepts. Those to whose requests headers are added have sets of their own. ok is false if names are not
// filtered: no forwarder is asked then.
func NamesOf(mode string, policy *agboxv1.NetworkSpec, injected []netentry.Entry) (n Names, ok bool, err error) {
	allow, err := parse(policy.GetAllow())
	if err != nil {
		return Names{}, false, err
	}
	deny, err := parse(policy.GetDeny())
	if err != nil {
		return Names{}, false, err
	}
	if filtered, err := filtersNames(mode, allow, deny, injected); err != nil || !filtered {
		return Names{}, false, err
	}
	n = Names{all: mode == Internet, allow: newDomains(), deny: newDomains(), sets: map[string]NameSet{}}
	for _, set := range slices.Concat(NameSets(allow, deny), NameSets(injected, deny)) { // allow has names in the mode internal alone
		n.sets[set.ID] = set
		for _, d := range set.Domains {
			n.allow.add(d, set.ID)
		}
	}
	var blocks []netip.Prefix
	for _, e := range allow {
		if e.Prefix.IsValid() {
			blocks = append(blocks, e.Prefix)
		}
	}
	n.addresses = Ranges(blocks)
	for _, e := range deny {
		if e.Domain != "" {
			n.deny.add(pattern(e), "")
		}
	}
	return n, true, nil
}

func newDomains() domains { return domains{exact: map[string][]string{}, below: map[string][]string{}} }

func (d domains) add(pattern, id string) {
	if domain, below := strings.CutPrefix(pattern, "*."); below {
		d.below[domain] = append(d.below[domain], id)
		return
	}
	d.exact[pattern] = append(d.exact[pattern], id)
}

// covering returns the IDs of the domains and patterns that cover a name.
func (d domains) covering(name string) []string {
	ids := slices.Clone(d.exact[name])
	for rest := name; ; {
		_, parent, more := strings.Cut(rest, ".")
		if !more {
			return ids
		}
		ids, rest = append(ids, d.below[parent]...), parent
	}
}

// Denied reports whether deny covers a name, which is in lower case and without the final dot, as in Answers.
func (n Names) Denied(name string) bool { return len(n.deny.covering(name)) > 0 }

// Answers reports whether a name is answered, and the IDs of the sets that its addresses belong to.
func (n Names) Answers(name string) (sets []string, ok bool) {
	if n.Denied(name) {
		return nil, false
	}
	if strings.Contains(name, `\`) { // an escaped dot is within a label, where covering would see two
		return nil, n.all
	}
	sets = sorted(n.allow.covering(name))
	return sets, n.all || len(sets) > 0
}

// Reaches reports whether a TCP connection to a port may ask for a name.
func (n Names) Reaches(name string, port uint16) bool {
	sets, _ := n.Answers(name)
	return slices.ContainsFunc(sets, func(id string) bool {
		s := n.sets[id]
		return s.Protocol != "udp" && (s.Ports.First == 0 || s.Ports.First <= port && port <= s.Ports.Last)
	})
}

// Permits reports whether a name may have an address: a public one that is none of the host's, or any that allow names.
func (n Names) Permits(a netip.Addr, ofHost bool) bool {
	return Public(a) && !ofHost || within(n.addresses, a)
}
