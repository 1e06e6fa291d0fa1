package e2b

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/netentry"
	"github.com/agbox/agbox/internal/netrules"
)

// egress is what a client lets a sandbox reach. Entries of AllowOut beat those of DenyOut; AllowOut alone, like false in InternetAccess, denies
// everything else.
type egress struct {
	InternetAccess *bool    `json:"allow_internet_access"`
	AllowOut       []string `json:"allowOut"`
	DenyOut        []string `json:"denyOut"`
}

// allTraffic is how the SDKs write all destinations.
const allTraffic = "0.0.0.0/0"

// maxDenied is the most entries of a policy.
const maxDenied = 10000

// everything are all addresses of both families.
var everything = []netip.Prefix{netip.MustParsePrefix(allTraffic), netip.MustParsePrefix("::/0")}

// policy returns the network policy. Nil: that of the daemon's default. No client opens more than public addresses: what lies behind the host is its
// operator's. Errors: 400, 501.
func (e egress) policy() (*agboxv1.NetworkSpec, error) {
	allow, domains, err := destinations("allowOut", e.AllowOut)
	if err != nil {
		return nil, err
	}
	deny, denied, err := destinations("denyOut", e.DenyOut)
	if err != nil {
		return nil, err
	}
	if len(denied) > 0 {
		return nil, unsupported("network.denyOut with the domain " + denied[0])
	}
	if len(domains) > 0 {
		return e.named(domains, allow, deny)
	}
	if e.InternetAccess != nil && !*e.InternetAccess || len(allow) > 0 && len(deny) == 0 {
		deny = everything
	}
	if len(deny) == 0 {
		return nil, nil //nolint:nilnil // an absent policy is none
	}
	if len(allow) == 0 && isEverything(deny) {
		return &agboxv1.NetworkSpec{Mode: "internal"}, nil
	}
	for _, a := range allow {
		deny = without(deny, a)
	}
	if len(deny) > maxDenied {
		return nil, failf(http.StatusBadRequest, "network: what allowOut leaves of denyOut are %d blocks of addresses; the limit is %d: write fewer entries", len(deny), maxDenied)
	}
	n := &agboxv1.NetworkSpec{Mode: "internet"}
	for _, p := range deny {
		n.Deny = append(n.Deny, p.String())
	}
	return n, nil
}

// named returns the policy that opens domains, and nothing else but single addresses.
func (e egress) named(domains []string, allow, deny []netip.Prefix) (*agboxv1.NetworkSpec, error) {
	if len(deny) > 0 && !isEverything(deny) && (e.InternetAccess == nil || *e.InternetAccess) {
		return nil, unsupported("network.allowOut with domains, and denyOut without " + allTraffic + ",")
	}
	n := &agboxv1.NetworkSpec{Mode: "internal", Allow: domains}
	for _, p := range allow {
		switch {
		case !p.IsSingleIP():
			return nil, unsupported("network.allowOut with domains and the block of addresses " + p.String())
		case !netrules.Public(p.Addr()):
			return nil, failf(http.StatusBadRequest, "network.allowOut: %s is no public address", p.Addr())
		}
		n.Allow = append(n.Allow, p.Addr().String())
	}
	return n, nil
}

func isEverything(blocks []netip.Prefix) bool {
	return slices.Contains(blocks, everything[0]) && slices.Contains(blocks, everything[1])
}

// destinations parses the entries of a list into blocks of addresses and domains. All of IPv4 means all of IPv6 as well.
func destinations(list string, entries []string) (out []netip.Prefix, domains []string, err error) {
	for i, text := range entries {
		if text == allTraffic {
			out = append(out, everything...)
			continue
		}
		p, err := netip.ParsePrefix(text)
		if a, addrErr := netip.ParseAddr(text); addrErr == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err == nil && p.Addr().Zone() == "" && !p.Addr().Is4In6() {
			out = append(out, p.Masked())
			continue
		}
		entry, err := netentry.Parse(text)
		if err != nil || entry.Domain == "" {
			return nil, nil, failf(http.StatusBadRequest, "network.%s[%d]: %q is neither an address, nor a CIDR block, nor a domain", list, i, text)
		}
		domains = append(domains, text)
	}
	return out, domains, nil
}

// without returns the blocks that remain of some without one.
func without(from []netip.Prefix, one netip.Prefix) (left []netip.Prefix) {
	for _, p := range from {
		for p.Overlaps(one) && p.Bits() < one.Bits() {
			low, high := halves(p)
			if low.Overlaps(one) {
				low, high = high, low
			}
			left, p = append(left, low), high
		}
		if !p.Overlaps(one) {
			left = append(left, p)
		}
	}
	return left
}

// halves splits a block.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits() + 1
	raw := p.Addr().AsSlice()
	raw[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	upper, _ := netip.AddrFromSlice(raw) // it has the length of an address
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(upper, bits)
}

// parseNetwork reads the network of a create. public: requests to ports need no token. Errors: 400, 501.
func parseNetwork(fields map[string]json.RawMessage) (out egress, public bool, err error) {
	public = true
	for field, to := range map[string]any{publicTrafficField: &public, "allowOut": &out.AllowOut, "denyOut": &out.DenyOut} {
		if value := fields[field]; value != nil && json.Unmarshal(value, to) != nil {
			return out, false, failf(http.StatusBadRequest, "network.%s: %s is not what this field takes", field, value)
		}
		delete(fields, field)
	}
	for field, value := range fields {
		if !isNothing(value) {
			return out, false, unsupported("network." + field)
		}
	}
	return out, public, nil
}

// setNetwork replaces what a sandbox reaches.
func (g *Gateway) setNetwork(w http.ResponseWriter, r *http.Request, owner string) error {
	var body egress
	if err := decode(w, r, &body, "allow_internet_access", "allowOut", "denyOut"); err != nil {
		return err
	}
	policy, err := body.policy()
	if err != nil {
		return err
	}
	sb, err := g.sandbox(r.Context(), owner, r.PathValue("id"))
	if err != nil {
		return err
	}
	spec := proto.CloneOf(sb.GetSpec())
	spec.Network = policy
	if _, err := g.api.UpdateSandbox(r.Context(), &agboxv1.UpdateSandboxRequest{SandboxId: sb.GetSandboxId(), CreateSpec: spec}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// networkOf is the network of a sandbox in answers. denyOut is what is enforced: without what allowOut had named.
func networkOf(sb *agboxv1.SandboxHandle) (network map[string]any, internet bool) {
	deny, allow := sb.GetSpec().GetNetwork().GetDeny(), sb.GetSpec().GetNetwork().GetAllow()
	if internet = !slices.Contains([]string{"internal", "none"}, sb.GetNetworkMode()); !internet {
		deny = []string{allTraffic}
	}
	network = map[string]any{publicTrafficField: !sb.GetSpec().GetGateway().GetPrivateTraffic()}
	if len(deny) > 0 {
		network["denyOut"] = deny
	}
	if len(allow) > 0 {
		network["allowOut"] = allow
	}
	return network, internet || len(allow) > 0
}
