package store

import (
	"slices"
	"testing"
)

func TestAnAgentLivesThroughATurn(t *testing.T) {
	s := open(t, testOptions(t))
	if a := withAgent(t, s, "agent"); a.Status.GetState() != agentPending || a.Status.GetVersion() != 1 {
		t.Fatalf("new: %+v", a)
	}
	makeIdle(t, s, "agent")
	if a := makeBusy(t, s, "agent", "p-1"); a.Status.GetState() != agentBusy || a.Status.GetPromptId() != "p-1" {
		t.Fatalf("busy: %+v", a)
	}
	ingest(t, s, "agent", append(said(messageBegins("m.1"), partEvent("m.1", 0, "a"), partEvent("m.1", 0, "ab"), messageEnds("m.1")), resultOutput("end_turn"))...)
	s = reopen(t, s)
	a := agent1(t, s, "agent")
	if a.Status.GetState() != agentIdle || a.Status.GetPromptId() != "" || a.Queued != 0 {
		t.Fatalf("after the turn: %+v", a)
	}
	got := kinds(agentEvents(t, s, "agent"))
	want := []string{
		"1 STARTING", "2 IDLE", "3 MESSAGE_CREATED", "4 MESSAGE_PART_UPDATED", "5 MESSAGE_COMPLETED", "6 BUSY",
		"7 MESSAGE_CREATED", "9 MESSAGE_PART_UPDATED", "10 MESSAGE_COMPLETED", "11 ASSISTANT_COMPLETED", "12 IDLE",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %v", got)
	}
	if a.Status.GetEvents() != uint64(len(want)) {
		t.Errorf("%d events are counted", a.Status.GetEvents())
	}
}
