package store

import (
	"fmt"
	"testing"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// A process that receives its context with its first prompt has a session worth resuming from then on.
func TestASessionWithoutThePastIsNotResumed(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	makeBusy(t, s, "agent", "p-1")
	ingest(t, s, "agent", AgentOutput{SessionID: "one"})
	trigger(t, s, "agent", crashed)
	tr := spawning(agent1(t, s, "agent"))
	tr.Rung = agboxv1.AgentRung_AGENT_RUNG_CONTEXT
	_, err := s.TransitionAgent(ctx, "agent", tr)
	must(t, err)
	ingest(t, s, "agent", AgentOutput{Ready: true}, AgentOutput{SessionID: "two"})
	if got := agent1(t, s, "agent").Status.GetSessionId(); got != "one" {
		t.Errorf("before its first prompt the session is %q", got)
	}
	claim(t, s, "agent")
	ingest(t, s, "agent", AgentOutput{SessionID: "two"})
	if got := agent1(t, s, "agent").Status.GetSessionId(); got != "two" {
		t.Errorf("in its first turn the session is %q", got)
	}
}

// saveSession records a session of a current agent as saved with everything up to now.
func saveSession(t *testing.T, s *Store, id string, change ...func(*storev1.AgentSessionRecord)) {
	t.Helper()
	st := agent1(t, s, id).Status
	rec := &storev1.AgentSessionRecord{Files: 1, Bytes: 10, SessionId: st.GetSessionId(), Through: st.GetLastSequence(), Tried: st.GetLastSequence()}
	for _, f := range change {
		f(rec)
	}
	must(t, s.RecordSession(ctx, id, st.GetIncarnation(), rec))
}

var result = AgentOutput{Event: &agboxv1.AgentEvent{
	EventType: agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED,
	Details:   &agboxv1.AgentEvent_Result{Result: &agboxv1.AgentResult{Outcome: "end_turn"}},
}, Result: true}

// sessionAgent has had one turn, in session "one", in sandbox "box".
func sessionAgent(t *testing.T) *Store {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	makeBusy(t, s, "agent", "p-1")
	ingest(t, s, "agent", AgentOutput{SessionID: "one"}, result)
	makeReady(t, s, "other")
	return s
}

// moveToOther moves the agent, whose process has ended.
func moveToOther(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.RequestMove(ctx, "agent", "other")
	must(t, err)
	endExec(t, s, "agent.1")
	must(t, s.MoveAgent(ctx, "agent", 0))
}

func TestAMoveKeepsTheSessionOnlyIfWhatIsSavedIsCurrent(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*testing.T, *Store)
		want string
	}{
		"never saved": {func(*testing.T, *Store) {}, ""},
		"saved":       {func(t *testing.T, s *Store) { saveSession(t, s, "agent") }, "one"},
		"saved, then a turn was cut off": {func(t *testing.T, s *Store) {
			saveSession(t, s, "agent")
			makeBusy(t, s, "agent", "p-2")
			trigger(t, s, "agent", crashed)
		}, "one"},
		"saved before the last result": {func(t *testing.T, s *Store) {
			saveSession(t, s, "agent")
			makeBusy(t, s, "agent", "p-2")
			ingest(t, s, "agent", result)
		}, ""},
		"another session": {func(t *testing.T, s *Store) {
			saveSession(t, s, "agent")
			makeBusy(t, s, "agent", "p-2")
			ingest(t, s, "agent", AgentOutput{SessionID: "two"})
			trigger(t, s, "agent", crashed)
		}, ""},
		"nothing to save": {func(t *testing.T, s *Store) {
			saveSession(t, s, "agent", func(r *storev1.AgentSessionRecord) { r.Files = 0 })
		}, ""},
		"the last attempt failed": {func(t *testing.T, s *Store) {
			saveSession(t, s, "agent")
			makeBusy(t, s, "agent", "p-2")
			ingest(t, s, "agent", result)
			saveSession(t, s, "agent", func(r *storev1.AgentSessionRecord) { r.Problem = "too large" })
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := sessionAgent(t)
			tc.do(t, s)
			if a := agent1(t, s, "agent"); a.lives() {
				trigger(t, s, "agent", crashed)
			}
			moveToOther(t, s)
			st := agent1(t, s, "agent").Status
			if st.GetSessionId() != tc.want || (st.GetSession() != nil) != (tc.want != "") {
				t.Errorf("session %q, %v; want %q", st.GetSessionId(), st.GetSession(), tc.want)
			}
			if tc.want == "" {
				return
			}
			must(t, s.RecordSessionRestored(ctx, "agent", "other", ""))
			must(t, s.RecordSessionRestored(ctx, "agent", "other", "")) // a daemon that died in between repeats it
			if got := agent1(t, s, "agent").Status.GetSession().GetSandboxId(); got != "other" {
				t.Errorf("its session is in %q", got)
			}
			restored := 0
			for _, e := range agentEvents(t, s, "agent") {
				if e.GetEventType() == agboxv1.AgentEventType_AGENT_SESSION_RESTORED {
					restored++
				}
			}
			if restored != 1 {
				t.Errorf("%d events", restored)
			}
		})
	}
}

func TestASessionThatCannotBePutBackIsForgotten(t *testing.T) {
	s := sessionAgent(t)
	saveSession(t, s, "agent")
	trigger(t, s, "agent", crashed)
	moveToOther(t, s)
	if err := s.RecordSessionRestored(ctx, "agent", "box", ""); !errdefs.IsAborted(err) {
		t.Errorf("in its old sandbox: %v", err)
	}
	must(t, s.RecordSessionRestored(ctx, "agent", "other", "no room"))
	if st := agent1(t, s, "agent").Status; st.GetSessionId() != "" || st.GetSession() != nil {
		t.Errorf("%v", st)
	}
}

// A session over the limit is reported once and not retried, and the last copy stays.
func TestASessionThatIsNotSavedIsToldOnce(t *testing.T) {
	s := sessionAgent(t)
	saveSession(t, s, "agent")
	for i := range 3 {
		makeBusy(t, s, "agent", fmt.Sprint("more-", i))
		ingest(t, s, "agent", result)
		saveSession(t, s, "agent", func(r *storev1.AgentSessionRecord) { r.Problem = "too large" })
	}
	a := agent1(t, s, "agent")
	rec := a.Status.GetSession()
	if rec.GetSavedAt() == 0 || rec.GetBytes() != 10 || rec.GetProblem() != "too large" || rec.GetTried() < a.Status.GetResultSequence() || a.IsSessionCurrent() {
		t.Errorf("%v", rec)
	}
	told := 0
	for _, e := range agentEvents(t, s, "agent") {
		if e.GetEventType() == agboxv1.AgentEventType_AGENT_SESSION_NOT_SAVED && e.GetSession().GetProblem() == "too large" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	if err := s.RecordSession(ctx, "agent", 7, rec); !errdefs.IsAborted(err) {
		t.Errorf("of another incarnation: %v", err)
	}
}
