// Package subnet allocates the networks' subnets from one block of IPv4 addresses. Its only I/O is reading the host's
// routing table.
package subnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// ErrExhausted says that no free prefix is left in the pool.
var ErrExhausted = errors.New("no free subnet")

// Doubt is how long a subnet is held after a create with an unknown outcome: longer than an engine needs to complete an
// accepted request. Reusing a subnet too early costs one refusal, nothing more.
const Doubt = 2 * time.Minute

// Allocator picks subnets, one after the other through the pool, so that freed ones are reused last. It skips those of the last
// list of the engine's networks. The engine refuses one that was used since that list; then Reset corrects the list. All state
// is in memory.
type Allocator struct {
	pool netip.Prefix

	mu     sync.Mutex
	after  netip.Addr                 // where the next search starts
	listed []netip.Prefix             // what the engine had at the last Reset
	held   map[netip.Prefix]time.Time // picked or in doubt, and until when; zero: until the engine has answered
	reset  bool
}

// NewAllocator returns an Allocator for pool, which must be IPv4 and a /28 or larger.
func NewAllocator(pool netip.Prefix) (*Allocator, error) {
	if !pool.Addr().Is4() || pool.Bits() > 28 {
		return nil, fmt.Errorf("%s: want an IPv4 block with room for a /28", pool)
	}
	pool = pool.Masked()
	return &Allocator{pool: pool, after: pool.Addr(), held: map[netip.Prefix]time.Time{}}, nil
}

// Reset replaces the listed subnets with those of all of the engine's networks. Held subnets stay held.
func (a *Allocator) Reset(listed []netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listed, a.reset = listed, true
}

// Known reports whether Reset has been called.
func (a *Allocator) Known() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reset
}

// Pick returns a prefix of the given length and holds it until Release or Suspect is called for it. routes are
// prefixes that are in use on the host. Errors: ErrExhausted.
func (a *Allocator) Pick(bits int, routes []netip.Prefix, now time.Time) (netip.Prefix, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := next(a.pool, bits, a.after, append(a.busy(now), routes...))
	if !ok {
		return netip.Prefix{}, a.exhausted(bits, routes)
	}
	a.held[p] = time.Time{}
	a.after = address(number(p.Addr()) + uint64(1)<<(32-bits))
	return p, nil
}

// exhausted reports the usual mistake: a pool inside a network that the host is part of or reaches through a VPN.
func (a *Allocator) exhausted(bits int, routes []netip.Prefix) error {
	for _, r := range routes {
		if r.Bits() <= a.pool.Bits() && r.Overlaps(a.pool) {
			return fmt.Errorf("the host has a route to %s, which covers %s: %w", r, a.pool, ErrExhausted)
		}
	}
	return fmt.Errorf("no free /%d in %s: %w", bits, a.pool, ErrExhausted)
}

// Release ends the hold of p: the engine has answered.
func (a *Allocator) Release(p netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.held, p)
}

// Suspect holds p for the time Doubt: the engine refused it, or its answer was lost.
func (a *Allocator) Suspect(p netip.Prefix, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[p] = now.Add(Doubt)
}

// busy lists the prefixes that may not be picked, and drops expired holds. Called with mu held.
func (a *Allocator) busy(now time.Time) []netip.Prefix {
	out := slices.Clone(a.listed)
	for p, until := range a.held {
		if !until.IsZero() && now.After(until) {
			delete(a.held, p)
			continue
		}
		out = append(out, p)
	}
	return out
}
