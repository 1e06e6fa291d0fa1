package controller_test

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// While the engine does not answer, containers run on, with live-restore also without it. Rules that the host's firewall removes then are set
// again from the records: by a daemon that sees it, also if it fails at first, and by one that starts later.
func TestRulesAreRepairedWithoutTheEngine(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		const box = "confined"
		spec := &agboxv1.CreateSpec{Image: image, Network: &agboxv1.NetworkSpec{Mode: "internet"}}
		if _, err := p.store.CreateSandbox(t.Context(), box, "", spec, nil); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		p.wantState(t, box, ready)
		rules := p.firewall.bridges()
		p.engine.Down(true)
		p.firewall.flush(true)
		pass(time.Second)
		if got := p.firewall.bridges(); len(rules) != 1 || len(got) != 1 {
			t.Errorf("the daemon saw the rules %q go, and has set %q", rules, got)
		}
		p.firewall.fail(1)
		p.firewall.flush(true)
		pass(20 * time.Second)
		if got := p.firewall.bridges(); len(got) != 1 {
			t.Errorf("after a change of the packet filter that failed once, the daemon has set %q", got)
		}
		p.firewall.flush(false)
		p.restarted(t, time.Second)
		pass(time.Second)
		if got := p.firewall.bridges(); len(got) != 1 {
			t.Errorf("the next daemon has set %q", got)
		}
	}, seldom)
}
