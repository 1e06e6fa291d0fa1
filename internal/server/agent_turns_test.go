package server

import (
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/conversation"
)

func TestALongConversationComesInPages(t *testing.T) {
	var turns []conversation.Turn
	for i := range 10 {
		turns = append(turns, conversation.Turn{Sequence: uint64(10 * (i + 1)), Content: strings.Repeat("x", 1<<20)})
	}
	var seen []uint64
	req := &agboxv1.GetAgentConversationRequest{}
	for pages := 0; ; pages++ {
		page, more := selectTurns(turns, req)
		if len(page) == 0 || len(page) > 3 || pages > 10 {
			t.Fatalf("page %d has %d turns", pages, len(page))
		}
		for i := len(page) - 1; i >= 0; i-- {
			seen = append(seen, page[i].Sequence)
		}
		if !more {
			break
		}
		req.BeforeSequence = page[0].Sequence
	}
	if len(seen) != 10 || seen[0] != 100 || seen[9] != 10 {
		t.Errorf("seen %v, want each once, the newest first", seen)
	}
}

func TestTheNewestTurnIsReturnedWhateverItsLength(t *testing.T) {
	huge := []conversation.Turn{{Sequence: 1}, {Sequence: 2, Content: strings.Repeat("x", 2*turnBytes)}}
	page, more := selectTurns(huge, &agboxv1.GetAgentConversationRequest{})
	if len(page) != 1 || page[0].Sequence != 2 || !more {
		t.Errorf("got %d turns, more %v", len(page), more)
	}
	page, more = selectTurns(huge, &agboxv1.GetAgentConversationRequest{LastTurns: 1})
	if len(page) != 1 || more {
		t.Errorf("of one that was asked for got %d, more %v", len(page), more)
	}
}
