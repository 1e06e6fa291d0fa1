package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	agbox "github.com/agbox/agbox/client"

	"github.com/agbox/agbox/internal/wait"
)

const (
	// anchors is the number of sandboxes that no client changes. So several sandboxes vanish together whenever all are hidden.
	anchors = 2
	// anchorTimeout is the timeout of their create, before the faults start.
	anchorTimeout = time.Minute
)

// anchor creates the anchors and waits until they are READY.
func (s *storm) anchor(ctx context.Context, api *agbox.Client) error {
	ctx, cancel := context.WithTimeout(ctx, anchorTimeout)
	defer cancel()
	for n := range anchors {
		id := fmt.Sprintf("anchor-%d", n)
		if _, err := api.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: image}}); err != nil {
			return fmt.Errorf("create %s: %w", id, err)
		}
		s.book.acceptSandbox(id, plain)
		if _, err := api.WaitSandbox(ctx, id, agbox.Ready); err != nil {
			return fmt.Errorf("wait for %s: %w", id, err)
		}
	}
	return nil
}

// lie changes the mode of the proxy. Most lies are short and affect some requests; three in each lieCycle hide whole sandboxes.
func (s *storm) lie(ctx context.Context) error {
	r := s.rng(3)
	defer s.proxy.set(honest)
	for n := 1; wait.For(ctx, between(r, 500*time.Millisecond, 4*time.Second)) == nil; n++ {
		short, m := between(r, 300*time.Millisecond, 4*time.Second), lies[r.IntN(len(lies))]
		switch n % lieCycle {
		case 2, 6:
			s.hideOne(ctx, r)
		case 4:
			if err := s.hideAll(ctx, r); err != nil {
				return err
			}
		default:
			s.proxy.set(m)
			_ = wait.For(ctx, short)
		}
		s.proxy.set(honest)
	}
	return nil
}

const (
	// lieCycle is the number of lies after which the sequence repeats.
	lieCycle = 8
	// leastHideOne and mostHideOne bound the time for which one sandbox is hidden. The controller fails a sandbox that is missing alone for
	// 10 s.
	leastHideOne, mostHideOne = 4 * time.Second, 9 * time.Second
	// leastHideAll and mostHideAll bound the time for which all sandboxes are hidden: long enough for two observations 10 s apart. The
	// controller never fails sandboxes that vanish together.
	leastHideAll, mostHideAll = 12 * time.Second, 25 * time.Second
)

// hideOne hides one sandbox. No verdict may follow: a verdict takes two observations 10 s apart.
func (s *storm) hideOne(ctx context.Context, r *rand.Rand) {
	lasts, pick, quiet := between(r, leastHideOne, mostHideOne), r.IntN(1<<16), r.IntN(2) == 0
	// Do not hide the same sandbox twice in a row: without an observation in between, two lies would be one long absence.
	victims := slices.DeleteFunc(s.book.undeleted(), func(id string) bool { return id == s.victim })
	s.victim = victims[pick%len(victims)]
	s.book.count("one sandbox hidden")
	if quiet { // each start of the daemon restarts the proof of an absence
		s.truce.Lock()
		defer s.truce.Unlock()
	}
	s.proxy.hide(s.victim)
	_ = wait.For(ctx, lasts)
}

// hideAll hides all sandboxes. No verdict may follow: there are always two anchors, which vanish together. If daemons may be killed, a new
// daemon observes the lie in its first resync; otherwise the daemon observes it within a resync interval, perhaps too late for two
// observations.
func (s *storm) hideAll(ctx context.Context, r *rand.Rand) error {
	lasts := between(r, leastHideAll, mostHideAll)
	s.book.count("all sandboxes hidden")
	s.truce.Lock()
	defer s.truce.Unlock()
	s.proxy.hide("")
	if s.has(faultKill) {
		if err := s.daemon.kill(0); err != nil {
			return err
		}
	}
	_ = wait.For(ctx, lasts)
	return nil
}
