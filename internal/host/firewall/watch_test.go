package firewall_test

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/internal/testing/netns"
)

// dropper is set in the environment of a second process of this test, which drops the table in the network namespace of its file 3.
const dropper = "AGBOX_TEST_DROP_TABLE"

// admitter is the ID of the names of which a second process admits an address, for a moment and again.
const admitter = "AGBOX_TEST_ADMIT"

// enforcer is the same for a process that sets or removes the rules of a bridge.
const enforcer = "AGBOX_TEST_ENFORCE"

func TestMain(m *testing.M) {
	if bridge := os.Getenv(enforcer); bridge != "" {
		fw, closed := firewall.New(3), netrules.Rules{Bridge: bridge, From: []netrules.Rule{{Drop: true}}}
		if held, err := fw.Holds(closed); err != nil || held {
			closed.From = nil
		}
		if err := fw.Enforce(closed); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	if id := os.Getenv(admitter); id != "" {
		fw := firewall.New(3)
		for range 3 {
			if err := fw.Admit(bridge, []firewall.Admission{{Names: id, Addr: netip.MustParseAddr("1.1.1.1"), For: 50 * time.Millisecond}}); err != nil {
				panic(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		os.Exit(0)
	}
	if os.Getenv(dropper) != "" {
		if err := firewall.New(3).Drop(); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// watched runs a watch until the end of the test, and returns what it reports.
func watched(t *testing.T, fw *firewall.Firewall) <-chan struct{} {
	t.Helper()
	changed, ended := make(chan struct{}, 100), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- fw.Watch(ctx, func() { changed <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return changed
}

// Changes of this process are not reported; those of another one are, and then Holds reads the rules again.
func TestWatch(t *testing.T) {
	host := netns.New(t, "host")
	fw := firewall.New(int(host.File.Fd()))
	changed := watched(t, fw)
	r, err := netrules.Make(netrules.Internet, nil, facts)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // the watch starts meanwhile, so some are remembered
		if err := fw.Enforce(r); err != nil {
			t.Fatal(err)
		}
		if ok, err := fw.Holds(r); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	drop := exec.Command(os.Args[0])
	drop.Env, drop.ExtraFiles = append(os.Environ(), dropper+"=1"), []*os.File{host.File}
	if out, err := drop.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Fatal("the change of another process is not reported")
	}
	if ok, err := fw.Holds(r); err != nil || ok {
		t.Fatal("the table is gone, yet Holds answers", ok, err)
	}
	if len(changed) > 0 {
		t.Error("a change is reported twice, or one of this process")
	}
}

// A watch reports no change of another daemon's bridges, and every change of its own.
func TestWatchOfAnotherDaemon(t *testing.T) {
	host := netns.New(t, "host")
	ours, theirs := firewall.New(int(host.File.Fd())), "br-theirs"
	closed := func(bridge string) netrules.Rules {
		r, err := netrules.Make(netrules.Internal, nil, netrules.Facts{Bridge: bridge})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if err := ours.Enforce(closed(bridge)); err != nil {
		t.Fatal(err)
	}
	changed := watched(t, ours)
	elsewhere := func(what string) {
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.ExtraFiles = append(os.Environ(), enforcer+"="+what), []*os.File{host.File}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	told := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatal(what)
		}
	}
	elsewhere(bridge) // the watch may not run yet
	for range 100 {
		if len(changed) > 0 {
			break
		}
		elsewhere(bridge)
	}
	told("no report of our bridge")
	for len(changed) > 0 {
		<-changed
	}
	elsewhere(theirs)
	elsewhere(theirs)
	elsewhere(bridge)
	told("no report of our bridge after theirs")
	if len(changed) > 0 {
		t.Error("another daemon's bridge is reported, too")
	}
}

// Addresses that another process admits are no change of the rules.
func TestWatchIgnoresAdmissions(t *testing.T) {
	host := netns.New(t, "host")
	fw := firewall.New(int(host.File.Fd()))
	changed := watched(t, fw)
	r, err := netrules.Make(netrules.Internal, &agboxv1.NetworkSpec{Allow: []string{"a.example"}}, facts)
	if err != nil {
		t.Fatal(err)
	}
	if err := fw.Enforce(r); err != nil {
		t.Fatal(err)
	}
	run := func(env string) {
		t.Helper()
		c := exec.Command(os.Args[0])
		c.Env, c.ExtraFiles = append(os.Environ(), env), []*os.File{host.File}
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	run(admitter + "=" + idOf(t, "a.example", ""))
	run(dropper + "=1") // what it reports comes after all before
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Fatal("the change of another process is not reported")
	}
	if len(changed) > 0 {
		t.Error("admissions are reported")
	}
}

func TestSweep(t *testing.T) {
	host := netns.New(t, "host")
	fw := firewall.New(int(host.File.Fd()))
	for _, name := range []string{"br-exists", "br-kept", "br-gone"} {
		r, err := netrules.Make(netrules.Internal, nil, netrules.Facts{Bridge: name})
		if err != nil {
			t.Fatal(err)
		}
		if err := fw.Enforce(r); err != nil {
			t.Fatal(err)
		}
	}
	host.IP(t, "link add br-exists type bridge")
	removed, err := fw.Sweep(func(bridge string) bool { return bridge == "br-kept" })
	if err != nil || !slices.Equal(removed, []string{"br-gone"}) {
		t.Fatal(removed, err)
	}
	if left, err := fw.Bridges(); err != nil || !slices.Equal(left, []string{"br-exists", "br-kept"}) {
		t.Fatal(left, err)
	}
	if exists, err := fw.Exists("br-exists"); err != nil || !exists {
		t.Error(exists, err)
	}
	if exists, err := fw.Exists("br-gone"); err != nil || exists {
		t.Error(exists, err)
	}
}
