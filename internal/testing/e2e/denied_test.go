//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// denials returns the events about a sandbox's denials that name a destination.
func (d *daemon) denials(id, destination string) (n int) {
	d.Helper()
	for _, e := range d.events(id) {
		for _, one := range e.GetNetworkDenied().GetDenials() {
			if one.GetDestination() == destination && one.GetCount() > 0 {
				n++
			}
		}
	}
	return n
}

// What a policy denies a sandbox is an event, once, and in "agbox network", with what it reached. A daemon that is killed loses and repeats nothing.
func TestDenialsAreShown(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1s\"\n")
	port := hostService(t)
	id := d.create(&agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{fmt.Sprintf("host:%d/tcp", port)}}})
	d.await(id, ready)
	d.hostIs(id, port, "host")
	block, _ := d.outside()
	addr := block + ".2"
	d.kill()
	d.start()
	try := fmt.Sprintf("timeout 1 nc %s 8080 </dev/null || echo closed", addr)
	if got := d.sh(id, try); got != "closed\n" {
		t.Fatalf("another network says %q", got)
	}
	denied := addr + ":8080/tcp"
	reported := func(destination string) {
		t.Helper()
		d.eventually("an event about "+destination, func() error {
			if d.denials(id, destination) == 0 {
				return errors.New("there is none")
			}
			return nil
		})
	}
	reported(denied)
	table := d.agbox("network", id)
	for _, want := range []string{"denied   " + addr, "8080/tcp", fmt.Sprintf("%d/tcp", port), "(host)"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	if learned := d.agbox("network", id, "--learn"); !strings.Contains(learned, fmt.Sprintf("  - \"host:%d/tcp\"\n", port)) || !strings.Contains(learned, "  # - \""+denied+"\"\n") {
		t.Errorf("learned:\n%s", learned)
	}
	if why := d.agbox("explain", id); !strings.Contains(why, denied+", ") {
		t.Errorf("explained:\n%s", why)
	}
	d.kill()
	d.start()
	d.sh(id, try)
	d.sh(id, strings.ReplaceAll(try, "8080", "8081"))
	reported(addr + ":8081/tcp")
	if n := d.denials(id, denied); n != 1 {
		t.Errorf("%d events about %s", n, denied)
	}
}
