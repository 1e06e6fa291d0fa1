package firewall

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Admission lets packets to an address pass for a time.
type Admission struct {
	// Names is the ID of a set, see netrules.NameSet.
	Names string
	Addr  netip.Addr
	For   time.Duration
}

// ErrNoSet is returned by Admit if the bridge has no such set, because the rules that name it are not in force.
var ErrNoSet = errors.New("the rules in force have no such names")

// Admit adds addresses to sets of a bridge, or sets the time of those that are there. All of them are admitted or none. Enforce keeps the
// addresses of the sets that the new rules name, too.
func (f *Firewall) Admit(bridge string, list []Admission) error {
	if len(list) == 0 {
		return nil
	}
	sets := map[string][]nftables.SetElement{}
	for _, a := range list {
		name := resolvedName(bridge, a.Names, a.Addr.Is4())
		sets[name] = append(sets[name], nftables.SetElement{Key: a.Addr.AsSlice(), Timeout: a.For})
	}
	const tries = 3 // an element may time out between its first addition, which keeps it, and its removal
	var err error
	for range tries {
		if err = f.with(func(c conn) error { return c.admit(sets) }); !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrNoSet, err)
}

// admit adds each element, removes it and adds it again: before Linux 6.12 the addition of one that is there leaves its time as it was, and a
// removal fails of one that is not there. No packet sees the steps between.
func (c conn) admit(sets map[string][]nftables.SetElement) error {
	for name, elements := range sets {
		set := resolvedSet(name)
		for some := range slices.Chunk(elements, elementsPerMessage) {
			if err := errors.Join(c.SetAddElements(set, some), c.SetDeleteElements(set, some), c.SetAddElements(set, some)); err != nil {
				return err
			}
		}
	}
	return flush(c, "admit addresses")
}

// The sets of a bridge that Admit fills are named after the IDs of their names.
const resolved4, resolved6 = ".names4.", ".names6."

func resolvedName(bridge, id string, v4 bool) string {
	if v4 {
		return bridge + resolved4 + id
	}
	return bridge + resolved6 + id
}

// isResolved reports whether a set is one that Admit fills.
func isResolved(set string) bool {
	return strings.Contains(set, resolved4) || strings.Contains(set, resolved6)
}

func resolvedSet(name string) *nftables.Set {
	key := nftables.TypeIPAddr
	if strings.Contains(name, resolved6) {
		key = nftables.TypeIP6Addr
	}
	return &nftables.Set{Table: table, Name: name, HasTimeout: true, KeyType: key}
}
