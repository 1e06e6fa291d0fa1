package store

import (
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestOutputIsIngestedOnce(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	from, err := s.AgentPosition(ctx, "agent")
	must(t, err)
	to := proto.CloneOf(from)
	to.StdoutOffset, to.Decoder = 10, []byte("state")
	out := said(messageBegins("m"))
	must(t, s.Ingest(ctx, "agent", 1, from, to, out))
	version := agent1(t, s, "agent").Status.GetVersion()
	if err := s.Ingest(ctx, "agent", 1, from, to, out); !errdefs.IsAborted(err) {
		t.Errorf("taken in twice: %v", err)
	}
	if err := s.Ingest(ctx, "agent", 2, &storev1.AgentPosition{Incarnation: 2}, &storev1.AgentPosition{Incarnation: 2}, out); !errdefs.IsAborted(err) {
		t.Errorf("of an incarnation to come: %v", err)
	}
	trigger(t, s, "agent", crashed)
	spawn(t, s, "agent")
	if err := s.Ingest(ctx, "agent", 1, to, to, out); !errdefs.IsAborted(err) {
		t.Errorf("of an old incarnation: %v", err)
	}
	if got := agent1(t, s, "agent").Status; got.GetVersion() != version+2 || got.GetEvents() != 5 {
		t.Errorf("%v", got)
	}
}

func TestNothingNewMovesOnlyThePosition(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	before := agent1(t, s, "agent").Status
	ingest(t, s, "agent")
	if now := agent1(t, s, "agent").Status; !proto.Equal(now, before) {
		t.Errorf("%v became %v", before, now)
	}
	if p, err := s.AgentPosition(ctx, "agent"); err != nil || p.GetStdoutOffset() != 1 {
		t.Errorf("%v, %v", p, err)
	}
}

func TestReportsOfAProcessAboutItself(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	withAgent(t, s, "agent")
	spawn(t, s, "agent")
	c.pass(time.Second)
	ingest(t, s, "agent", AgentOutput{Ready: true, SessionID: "one"})
	if st := agent1(t, s, "agent").Status; st.GetState() != agentIdle || st.GetReadyAt() != c.at.UnixNano() || st.GetSessionId() != "one" {
		t.Errorf("ready: %v", st)
	}
	makeBusy(t, s, "agent", "p-1")
	ingest(t, s, "agent", AgentOutput{SessionLost: true}, resultOutput("error"), AgentOutput{Ready: true, Result: true})
	st := agent1(t, s, "agent").Status
	if st.GetState() != agentIdle || !st.GetSessionLost() || st.GetPromptId() != "" {
		t.Errorf("result: %v", st)
	}
	events := agentEvents(t, s, "agent")
	if got := events[len(events)-2].GetResult(); got.GetPromptId() != "p-1" || got.GetOutcome() != "error" {
		t.Errorf("the result is of %v", got)
	}
	trigger(t, s, "agent", exited)
	ingest(t, s, "agent", append(said(checkpointEvent("late")), AgentOutput{Ready: true, SessionID: "two"}, resultOutput("end_turn"))...)
	st = agent1(t, s, "agent").Status
	if st.GetState() != agentStopped || st.GetSessionId() != "two" || st.GetSessionLost() || st.GetCheckpointSequence() == 0 {
		t.Errorf("what is read after the end changed the state: %v", st)
	}
}

func TestEventsThatNoProcessMayReport(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	for _, typ := range []agboxv1.AgentEventType{
		agboxv1.AgentEventType_AGENT_EVENT_TYPE_UNSPECIFIED, agboxv1.AgentEventType_AGENT_STATE_CHANGED,
		agboxv1.AgentEventType_AGENT_TRUNCATED, 99,
	} {
		if err := tryIngest(s, "agent", said(&agboxv1.AgentEvent{EventType: typ})...); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", typ, err)
		}
	}
	ingest(t, s, "agent", said(partEvent("m", 0, "a\xffb"))...)
	events := agentEvents(t, s, "agent")
	if text := events[len(events)-1].GetPart().GetText(); text != "a\uFFFDb" {
		t.Errorf("%q", text)
	}
}

func TestSupersededSnapshotsOfSeveralTransactionsGo(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	ingest(t, s, "agent", said(messageBegins("m"), partEvent("m", 0, strings.Repeat("a", 100)))...)
	ingest(t, s, "agent", said(partEvent("m", 1, "x"), partEvent("m", 0, "ab"), checkpointEvent("c"))...)
	ingest(t, s, "agent", said(partEvent("m", 0, "abc"))...)
	trigger(t, s, "agent", crashed)
	makeIdle(t, s, "agent")
	ingest(t, s, "agent", said(messageBegins("m"), partEvent("m", 0, "of the next"), messageEnds("m"))...)
	var texts []string
	for _, ev := range agentEvents(t, s, "agent") {
		if p := ev.GetPart(); p != nil {
			texts = append(texts, p.GetText())
		}
	}
	if len(texts) != 5 { // an IDLE agent had no turn to cut off: its output stays unchanged
		t.Errorf("%q", texts)
	}
	must(t, s.Close())
	checkDatabase(t, s.o.Path)
	_ = open(t, s.o)
}
