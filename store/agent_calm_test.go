package store

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// calmLife is a life without crashes: it shows the correct record of each version.
type calmLife struct {
	mu       sync.Mutex
	s        *Store
	pictures map[uint64]string
	newest   uint64
}

// at returns all records of an agent in a version.
func (c *calmLife) at(t *testing.T, version uint64) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pictures[version] == "" {
		if c.newest > version {
			t.Fatalf("no life has a version %d", version)
		}
		a, err := goOn(c.s, "agent-0")
		must(t, err)
		c.newest = a.Status.GetVersion()
		c.pictures[c.newest] = picture(t, c.s, "agent-0")
	}
	return c.pictures[version]
}

// picture returns all records of an agent, without its ID.
func picture(t *testing.T, s *Store, id string) string {
	t.Helper()
	a := agent1(t, s, id)
	claimed, err := s.ClaimedPrompt(ctx, id)
	must(t, err)
	queue, err := s.QueuedPrompts(ctx, id, 0)
	must(t, err)
	var moves []*agboxv1.AgentTransition
	for n := uint64(0); n < a.Status.GetTransitions(); {
		page, err := s.Transitions(ctx, id, n, 0)
		must(t, err)
		n += uint64(max(1, len(page)))
		moves = append(moves, page...)
	}
	all := fmt.Sprintf("%v\nqueued %d: %v\nworks on %v\n%v\n%v", a.Status, a.Queued, queue, claimed, moves, agentEvents(t, s, id))
	return strings.ReplaceAll(all, id, "agent")
}
