package firewall_test

import (
	"fmt"
	"testing"

	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/internal/testing/netns"
)

// A create pays for one Enforce, and each pass for one Holds, beside the rules of other sandboxes.
func BenchmarkEnforce(b *testing.B) {
	host := netns.New(b, "host")
	fw := firewall.New(int(host.File.Fd()))
	policy := func(i int) netrules.Rules {
		f := facts
		f.Bridge = fmt.Sprintf("br-%012x", i)
		r, err := netrules.Make("internet", nil, f)
		if err != nil {
			b.Fatal(err)
		}
		return r
	}
	const others = 200
	for i := range others {
		if err := fw.Enforce(policy(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("new", func(b *testing.B) {
		for i := range b.N {
			if err := fw.Enforce(policy(others + i)); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		for i := range b.N {
			if err := fw.Remove(policy(others + i).Bridge); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("holds", func(b *testing.B) {
		for range b.N {
			if ok, err := fw.Holds(policy(7)); err != nil || !ok {
				b.Fatal(ok, err)
			}
		}
	})
}
