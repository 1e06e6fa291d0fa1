package firewall_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
)

// dropper is set in the environment of a second process of this test, which drops the table in the network namespace of its file 3.
const dropper = "AGBOX_TEST_DROP_TABLE"

func TestMain(m *testing.M) {
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

// Changes of this process are not reported; those of another one are, and then Holds looks again.
func TestWatch(t *testing.T) {
	host := newNetns(t, "host")
	fw := firewall.New(int(host.file.Fd()))
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
	drop.Env, drop.ExtraFiles = append(os.Environ(), dropper+"=1"), []*os.File{host.file}
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

func TestSweep(t *testing.T) {
	host := newNetns(t, "host")
	fw := firewall.New(int(host.file.Fd()))
	for _, name := range []string{"br-exists", "br-kept", "br-gone"} {
		r, err := netrules.Make(netrules.Internal, nil, netrules.Facts{Bridge: name})
		if err != nil {
			t.Fatal(err)
		}
		if err := fw.Enforce(r); err != nil {
			t.Fatal(err)
		}
	}
	host.ip(t, "link add br-exists type bridge")
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
