package audit

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/internal/testing/netns"
)

// rule changes a chain of the rules of a bridge.
func (p *place) rule(name string, fn func(*chain)) {
	c := p.rules.chains[name]
	fn(&c)
	p.rules.chains[name] = c
}

var packetViolations = []planted{
	{"READY without rules", late(func(p *place) {
		for list := range hookOf {
			delete(p.rules.jumps[list], "br-net-web")
			delete(p.rules.chains, list+"-br-net-web")
		}
	}), "I24 sandbox web: its network is internet, and no rules of the list from hold for its bridge br-net-web"},
	{"READY with a list that nothing leads to", late(func(p *place) { delete(p.rules.jumps["input"], "br-net-web") }), "I24 sandbox web: its network is internet, and no rules of the list input hold"},
	{"READY with a chain without rules", late(func(p *place) { p.rule("from-br-net-web", func(c *chain) { c.rules = 0 }) }), "I24 sandbox web: its network is internet, and no rules of the list from hold"},
	{"a base chain that calls nothing", late(func(p *place) { p.rules.called["input"] = false }), "I24 sandbox web: its network is internet, and the kernel does not look up the list input"},
	{"rules with an open end", late(func(p *place) { p.rule("input-br-net-web", func(c *chain) { c.last = "" }) }), "I24 sandbox web: its network is internet, and packets get past the rules of the list input"},
	{"rules that end in a chain that lets pass", late(func(p *place) { p.rule("denied", func(c *chain) { c.last = "" }) }), "I24 sandbox cold: its network is none, and packets get past the rules of the list from"},
	{"rules that end in a circle", late(func(p *place) { p.rule("denied", func(c *chain) { c.last = "denied" }) }), "I24 sandbox cold: its network is none, and packets get past the rules of the list to"},
	{"a rule that accepts", late(func(p *place) { p.rule("from-br-net-web", func(c *chain) { c.accepts = true }) }), "I24 sandbox web: its network is internet, and a rule of the list from for its bridge br-net-web accepts packets"},
	{"PAUSED without rules", late(func(p *place) { delete(p.rules.chains, "output-br-net-cold") }), "I24 sandbox cold: its network is none, and no rules of the list output hold"},
	{"an unknown mode", early(func(p *place) {
		edit(p, "sandbox-desired", "web", &storev1.Desired{}, func(d *storev1.Desired) { d.Confinement.NetworkMode = "some" })
	}), "I24 sandbox web: its network mode is \"some\""},
	{"rules of an open sandbox", late(func(p *place) { p.rules.chains["from-br-net-died"] = chain{rules: 1} }), "I24 sandbox died: its network is open, and there are rules of its bridge br-net-died: from"},
	{"open with entries and without rules", early(func(p *place) {
		edit(p, "sandbox-config", "web", &agboxv1.CreateSpec{}, func(s *agboxv1.CreateSpec) {
			s.Network = &agboxv1.NetworkSpec{Mode: "open", Deny: []string{"10.0.0.1"}}
		})
		delete(p.rules.jumps["from"], "br-net-web")
	}), "I24 sandbox web: its network is open, and no rules of the list from hold"},
	{"DELETED and rules are left", early(func(p *place) {
		edit(p, "sandbox-desired", "gone", &storev1.Desired{}, func(d *storev1.Desired) { d.Objects = &storev1.Objects{NetworkId: "0123456789abcdef"} })
		p.rules.jumps["from"]["br-0123456789ab"] = "from-br-0123456789ab"
	}), "I24 sandbox gone: it is DELETED, and there are rules of its bridge br-0123456789ab: from"},
	{"DELETED and a part of its root is left", late(func(p *place) { p.root("gone") }), "I25 volume 0123456789ab: it is a part of the root of sandbox gone, which is deleted"},
	{"purged and a part of its root is left", late(func(p *place) { p.root("purged") }), "I25 volume 0123456789ab: it is a part of the root of sandbox purged, which is deleted"},
	{"a part of a root without a record", late(func(p *place) { p.root("alien") }), "I25 volume 0123456789ab: it is a part of the root of sandbox \"alien\", which is not on record"},
	{"a part of a root that can be written", late(func(p *place) { p.root("web") }), "I25 volume 0123456789ab: it is a part of the root of sandbox web, whose root is not read-only"},
	{"a part of a root that another sandbox mounts", late(func(p *place) { p.root("cold", p.one("web", "primary")) }), "I25 volume 0123456789ab: it is a part of the root of sandbox cold, and a container of another sandbox mounts it"},
}

// What the packet filter may have beside sound sandboxes, and what cannot be known, is no violation.
func TestRulesThatAreNobodysAreNoViolation(t *testing.T) {
	for _, row := range []planted{
		{"rules of another daemon", late(func(p *place) {
			p.rules.interfaces["br-other"] = true
			p.rules.jumps["from"]["br-other"] = "from-br-other"
		}), ""},
		{"rules of a bridge that is gone, that no record names", late(func(p *place) { p.rules.chains["to-br-other"] = chain{} }), "I24 packet filter: the bridge br-other is no interface"},
		{"the engine is elsewhere", late(func(p *place) { delete(p.rules.interfaces, "br-net-web") }), "I24 sandbox web: its network is internet; the rules are not checked: its bridge br-net-web is no interface here"},
		{"no privilege", late(func(p *place) { p.rules = &packets{unchecked: "it needs CAP_NET_ADMIN"} }), "I24 packet filter: the rules of network policies are not checked: it needs CAP_NET_ADMIN"},
		{"STOPPED without rules, as after a boot", early(func(p *place) {
			edit(p, "sandbox-desired", "still", &storev1.Desired{}, func(d *storev1.Desired) { d.Confinement = &storev1.Confinement{NetworkMode: "none"} })
		}), ""},
		{"left of what was deleted after a failure", early(func(p *place) {
			p.put("sandbox-unswept", "gone", num(1))
			edit(p, "sandbox-desired", "gone", &storev1.Desired{}, func(d *storev1.Desired) { d.Objects = &storev1.Objects{NetworkId: "left"} })
			p.rules.jumps["from"]["br-left"] = "from-br-left"
			p.root("gone")
		}), "I2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := sound(t)
			row.plant(p)
			r := p.run()
			if !r.OK() || (len(r.Warnings) > 0) != (row.want != "") || slices.ContainsFunc(r.Warnings, func(f Finding) bool { return !strings.HasPrefix(f.String(), row.want) }) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The auditor's own reader finds in the kernel what the daemon's packet filter has put there, and what others have changed.
func TestRulesInTheKernel(t *testing.T) {
	t.Parallel()
	host := netns.New(t, "host")
	fw := firewall.New(int(host.File.Fd()))
	read := func() (p *packets) {
		_ = host.Do(func() error { p = readPackets(); return nil })
		return p
	}
	if p := read(); p.unchecked != "" || len(p.bridges()) > 0 || !p.interfaces["lo"] {
		t.Fatalf("%+v", p)
	}
	const bridge = "br-0123456789ab"
	problems := func(p *packets, mode string) []Finding {
		a := &auditor{facts: &facts{packets: p}}
		a.rulesOf(a.about(flux, "I24", "sandbox x", ""), mode, bridge)
		return a.list
	}
	enforce := func(mode string, spec *agboxv1.NetworkSpec) {
		r, err := netrules.Make(mode, spec, netrules.Facts{Bridge: bridge, Forwarder: 10053})
		if err == nil {
			err = fw.Enforce(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []string{modeInternet, modeInternal, modeNone, modeOpen} {
		spec := &agboxv1.NetworkSpec{Mode: mode}
		switch mode {
		case modeOpen:
			spec.Deny = []string{"10.0.0.0/8"}
		case modeInternal:
			spec.Allow = []string{"example.com", "10.0.0.9:443", "host:8080"}
		default:
		}
		enforce(mode, spec)
		p := read()
		if found := problems(p, mode); p.unchecked != "" || len(found) > 0 || len(p.lists(bridge)) < len(listsNeeded[mode]) {
			t.Errorf("%s: %q, %v: %v", mode, p.unchecked, p.lists(bridge), found)
		}
	}
	if found := problems(read(), modeNone); len(found) == 0 {
		t.Error("the rules of open are those of none")
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(host.File.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	table := &nftables.Table{Name: "agbox", Family: nftables.TableFamilyINet}
	in := func(name string) *nftables.Chain { return &nftables.Chain{Name: name, Table: table} }
	accept := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	for what, change := range map[string]func(){
		"a chain is flushed":        func() { c.FlushChain(in("from-" + bridge)) },
		"a base chain is flushed":   func() { c.FlushChain(in("forward")) },
		"a base chain accepts":      func() { c.InsertRule(&nftables.Rule{Table: table, Chain: in("forward"), Exprs: accept}) },
		"a chain accepts":           func() { c.InsertRule(&nftables.Rule{Table: table, Chain: in("from-" + bridge), Exprs: accept}) },
		"denied packets pass":       func() { c.FlushChain(in("denied")) },
		"a map is flushed":          func() { c.FlushSet(&nftables.Set{Table: table, Name: "input"}) },
		"the table is gone":         func() { c.DelTable(table) },
		"a rule is behind the last": func() { c.AddRule(&nftables.Rule{Table: table, Chain: in("input-" + bridge), Exprs: accept}) },
	} {
		enforce(modeInternal, nil)
		if found := problems(read(), modeInternal); len(found) > 0 {
			t.Errorf("before %s: %v", what, found)
		}
		change()
		if err := c.Flush(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if len(problems(read(), modeInternal)) == 0 {
			t.Errorf("unseen: %s", what)
		}
	}
	if err := fw.Remove(bridge); err != nil {
		t.Fatal(err)
	}
	if p := read(); p.unchecked != "" || len(p.bridges()) > 0 {
		t.Errorf("%+v", p)
	}
	if p := withoutPrivilege(t, host); p.unchecked != "it needs CAP_NET_ADMIN" {
		t.Errorf("%+v", p)
	}
}

// withoutPrivilege reads on a thread that has no capabilities, and ends.
func withoutPrivilege(t *testing.T, host *netns.NS) (p *packets) {
	t.Helper()
	err := host.Do(func() error {
		none := [2]unix.CapUserData{}
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			return err
		}
		p = readPackets()
		return nil
	})
	if err != nil {
		t.Fatal(errors.New("drop the capabilities"), err)
	}
	return p
}
