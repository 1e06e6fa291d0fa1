package store

import (
	"fmt"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// flood ingests many messages, of three events each, in one transaction.
func flood(t testing.TB, s *Store, first, messages int) {
	t.Helper()
	var out []AgentOutput
	for n := range messages {
		id := fmt.Sprintf("m.%d", first+n)
		out = append(out, said(messageBegins(id), partEvent(id, 0, "m"), messageEnds(id))...)
	}
	ingest(t, s, "agent", out...)
}

func eventsInFile(t testing.TB, s *Store) (n int) {
	t.Helper()
	must(t, s.view(ctx, func(tx *bolt.Tx) error {
		n = tx.Bucket([]byte(prefixAgentEvents + "agent")).Stats().KeyN
		return nil
	}))
	return n
}

func TestAFloodLeavesNoMoreInTheFileThanTheBoundAndOneTransaction(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	makeBusy(t, s, "agent", "p-1")
	const messages = 3000
	for n := range 8 {
		flood(t, s, n*messages, messages)
		if got, most := eventsInFile(t, s), maxAgentEvents+2*3*messages; got > most {
			t.Fatalf("after %d transactions %d events are in the file, more than %d", n+1, got, most)
		}
	}
}
