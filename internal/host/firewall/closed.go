package firewall

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Closed are the chains of other tables, such as "inet filter input", that drop what no earlier rule of theirs lets through. What our table lets
// through has to pass them, too.
type Closed struct {
	// Input are those for packets to the host itself, Forward those for packets that it passes on. A table with chains of Docker is not among the
	// latter: Docker opens it for its networks.
	Input, Forward []string
}

// Closed returns the chains of other tables that are closed. It does not see rules of iptables-legacy.
func (f *Firewall) Closed() (found Closed, err error) {
	err = f.with(func(c conn) error {
		chains, err := c.ListChains()
		if err != nil {
			return fmt.Errorf("nftables: list chains: %w", err)
		}
		engines := map[nftables.Table]bool{}
		for _, ch := range chains {
			if slices.Contains([]string{"DOCKER", "DOCKER-USER", "DOCKER-FORWARD", "filter-FORWARD__docker"}, ch.Name) {
				engines[keyOf(ch.Table)] = true
			}
		}
		for _, ch := range chains {
			input, forward := hooked(ch, nftables.ChainHookInput), hooked(ch, nftables.ChainHookForward) && !engines[keyOf(ch.Table)]
			if keyOf(ch.Table) == keyOf(table) || !input && !forward {
				continue
			}
			closed, err := c.closed(ch)
			if err != nil {
				return err
			}
			if name := families[ch.Table.Family] + " " + ch.Table.Name + " " + ch.Name; closed && input {
				found.Input = append(found.Input, name)
			} else if closed {
				found.Forward = append(found.Forward, name)
			}
		}
		slices.Sort(found.Input)
		slices.Sort(found.Forward)
		return nil
	})
	return found, err
}

var families = map[nftables.TableFamily]string{
	nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyBridge: "bridge",
}

func keyOf(t *nftables.Table) nftables.Table { return nftables.Table{Name: t.Name, Family: t.Family} }

// hooked reports whether packets of IP meet a chain at a hook.
func hooked(ch *nftables.Chain, hook *nftables.ChainHook) bool {
	return ch.Hooknum != nil && *ch.Hooknum == *hook && ch.Type == nftables.ChainTypeFilter && families[ch.Table.Family] != ""
}

// closed reports whether a base chain drops by its policy, or refuses all by its last rule.
func (c conn) closed(ch *nftables.Chain) (bool, error) {
	if ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop {
		return true, nil
	}
	rules, err := c.GetRules(ch.Table, ch)
	if err != nil || len(rules) == 0 {
		return false, err
	}
	for _, e := range rules[len(rules)-1].Exprs {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log:
		case *expr.Match: // of iptables-nft
			if e.Name != "comment" {
				return false, nil
			}
		case *expr.Target:
			return e.Name == "REJECT", nil
		case *expr.Reject:
			return true, nil
		case *expr.Verdict:
			return e.Kind == expr.VerdictDrop, nil
		default:
			return false, nil // it has a condition
		}
	}
	return false, nil
}
