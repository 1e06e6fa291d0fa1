package cli

import (
	"testing"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestChoosingAPrompt(t *testing.T) {
	one := &agboxv1.AgentHandle{Name: "bot", Queue: []*agboxv1.AgentQueuedPrompt{
		{PromptId: "abc-1", Held: true}, {PromptId: "abd-2"}, {PromptId: "ab"},
	}}
	redeliver, withdraw := promptVerbs[0], promptVerbs[1]
	for _, c := range []struct {
		verb        promptVerb
		start, want string
	}{
		{redeliver, "", "abc-1"}, {redeliver, "a", "abc-1"}, {redeliver, "abd-2", "abd-2"}, {redeliver, "abc-1", "abc-1"},
		{withdraw, "abd", "abd-2"}, {withdraw, "ab", "ab"}, {withdraw, "other", "other"},
		{withdraw, "", ""}, {withdraw, "a", ""},
	} {
		if got, err := c.verb.choose(&cobra.Command{}, one, c.start); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s %q chooses %q: %v", c.verb.name, c.start, got, err)
		}
	}
	if _, err := redeliver.choose(&cobra.Command{}, &agboxv1.AgentHandle{Name: "bot"}, ""); err == nil || err.Error() != "agent bot has no held prompt" {
		t.Error(err)
	}
}
