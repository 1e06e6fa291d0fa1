package firewall_test

import (
	"reflect"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/testing/netns"
)

// What hosts' firewalls look like: a policy, or a last rule without a condition. Docker's own table has a policy, too.
func TestClosedChains(t *testing.T) {
	t.Parallel()
	host := netns.New(t, "host")
	fw := firewall.New(int(host.File.Fd()))
	defer fw.Close()
	want := func(want firewall.Closed) {
		t.Helper()
		if got, err := fw.Closed(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	want(firewall.Closed{})
	if err := fw.Check(); err != nil {
		t.Fatal(err)
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(host.File.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	accept, drop := nftables.ChainPolicyAccept, nftables.ChainPolicyDrop
	base := func(family nftables.TableFamily, tableName, name string, hook *nftables.ChainHook, policy *nftables.ChainPolicy, rules ...[]expr.Any) {
		table := c.AddTable(&nftables.Table{Name: tableName, Family: family})
		chain := c.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter, Policy: policy})
		for _, exprs := range rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
		}
	}
	verdict := func(k expr.VerdictKind) *expr.Verdict { return &expr.Verdict{Kind: k} }
	condition := []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: append([]byte("lo"), make([]byte, 14)...)}}
	base(nftables.TableFamilyINet, "own", "input", nftables.ChainHookInput, &drop, append(condition, verdict(expr.VerdictAccept)))
	base(nftables.TableFamilyINet, "own", "output", nftables.ChainHookOutput, &drop)
	base(nftables.TableFamilyINet, "firewalld", "filter_INPUT", nftables.ChainHookInput, &accept, append(condition, verdict(expr.VerdictAccept)), []expr.Any{&expr.Counter{}, &expr.Reject{Type: 2, Code: 3}})
	base(nftables.TableFamilyINet, "firewalld", "filter_FORWARD", nftables.ChainHookForward, &accept, []expr.Any{verdict(expr.VerdictDrop)})
	base(nftables.TableFamilyIPv4, "lenient", "input", nftables.ChainHookInput, &accept, append(condition, verdict(expr.VerdictDrop)))
	base(nftables.TableFamilyIPv4, "lenient", "forward", nftables.ChainHookForward, &accept, []expr.Any{verdict(expr.VerdictDrop)}, []expr.Any{verdict(expr.VerdictAccept)})
	base(nftables.TableFamilyIPv4, "filter", "FORWARD", nftables.ChainHookForward, &drop)
	c.AddChain(&nftables.Chain{Name: "DOCKER-USER", Table: &nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4}})
	base(nftables.TableFamilyIPv4, "filter", "INPUT", nftables.ChainHookInput, &drop)
	base(nftables.TableFamilyIPv6, "filter", "FORWARD", nftables.ChainHookForward, &drop)
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	want(firewall.Closed{
		Input:   []string{"inet firewalld filter_INPUT", "inet own input", "ip filter INPUT"},
		Forward: []string{"inet firewalld filter_FORWARD", "ip6 filter FORWARD"},
	})
}
