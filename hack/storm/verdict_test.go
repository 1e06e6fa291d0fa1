package main

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	pending  = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	readyBox = agboxv1.SandboxState_SANDBOX_STATE_READY
	stopped  = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	paused   = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	failed   = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	deleting = agboxv1.SandboxState_SANDBOX_STATE_DELETING
	deleted  = agboxv1.SandboxState_SANDBOX_STATE_DELETED
)

// S1: an accepted sandbox or exec that is not on record is reported.
func TestTheStormReportsUnrecordedObjects(t *testing.T) {
	for name, row := range map[string]struct {
		sandboxes []*agboxv1.SandboxHandle
		execs     []string
		want      string
	}{
		"both are there": {[]*agboxv1.SandboxHandle{{SandboxId: "s"}}, []string{"e"}, ""},
		"a lost sandbox": {nil, []string{"e"}, "accepted sandbox s: rpc error: code = NotFound"},
		"a lost exec":    {[]*agboxv1.SandboxHandle{{SandboxId: "s"}}, nil, "accepted exec e: rpc error: code = NotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &storm{book: newBook()}
			s.book.acceptSandbox("s", plain)
			s.book.acceptExec("e", "s")
			if err := s.outcomes(t.Context(), &fakeAPI{sandboxes: row.sandboxes, execs: row.execs}); err != nil {
				t.Fatal(err)
			}
			s.book.wantProblem(t, row.want)
		})
	}
}

// S5: a sandbox or exec that does not settle within three minutes is reported.
func TestTheStormReportsObjectsThatDoNotConverge(t *testing.T) {
	type box = agboxv1.SandboxHandle
	for name, row := range map[string]struct {
		box   *box
		agent *agboxv1.AgentHandle
		gone  bool
		want  string
	}{
		"ready":                        {box: &box{State: readyBox}},
		"failed":                       {box: &box{State: failed}},
		"paused with a frozen exec":    {box: &box{State: paused, ActiveExecs: 1}},
		"pending":                      {box: &box{State: pending}, want: "sandbox s is SANDBOX_STATE_PENDING"},
		"deleting":                     {box: &box{State: deleting}, want: "sandbox s is SANDBOX_STATE_DELETING"},
		"wanted otherwise":             {box: &box{State: readyBox, DesiredState: "stop"}, want: "sandbox s is"},
		"an exec that does not end":    {box: &box{State: readyBox, ActiveExecs: 1}, want: "with 1 active execs"},
		"deleted":                      {box: &box{State: deleted}, gone: true},
		"left after its delete":        {box: &box{State: stopped}, gone: true, want: "sandbox s is SANDBOX_STATE_STOPPED"},
		"an idle agent":                {box: &box{State: readyBox, ActiveExecs: 1}, agent: &agboxv1.AgentHandle{State: agboxv1.AgentState_AGENT_STATE_IDLE}},
		"a busy agent":                 {box: &box{State: readyBox, ActiveExecs: 1}, agent: &agboxv1.AgentHandle{State: agboxv1.AgentState_AGENT_STATE_BUSY}, want: "agent a is AGENT_STATE_BUSY"},
		"an agent that starts":         {box: &box{State: readyBox, ActiveExecs: 1}, agent: &agboxv1.AgentHandle{State: agboxv1.AgentState_AGENT_STATE_STARTING}, want: "agent a is AGENT_STATE_STARTING"},
		"an idle agent with a prompt":  {box: &box{State: readyBox, ActiveExecs: 1}, agent: &agboxv1.AgentHandle{State: agboxv1.AgentState_AGENT_STATE_IDLE, QueuedPrompts: 1}, want: "with 1 prompts"},
		"a prompt in a stopped one":    {box: &box{State: stopped}, agent: &agboxv1.AgentHandle{State: agboxv1.AgentState_AGENT_STATE_STOPPED, QueuedPrompts: 1}},
		"an exec besides the agent's":  {box: &box{State: readyBox, ActiveExecs: 2}, agent: &agboxv1.AgentHandle{State: agboxv1.AgentState_AGENT_STATE_IDLE}, want: "with 2 active execs"},
		"the agent of another sandbox": {box: &box{State: readyBox, ActiveExecs: 1}, agent: &agboxv1.AgentHandle{SandboxId: "other", State: agboxv1.AgentState_AGENT_STATE_IDLE}, want: "with 1 active execs"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &storm{book: newBook()}
				row.box.SandboxId = "s"
				if row.agent != nil {
					row.agent.AgentId = "a"
					if row.agent.SandboxId == "" {
						row.agent.SandboxId = "s"
					}
				}
				if err := s.settle(t.Context(), &fakeAPI{sandboxes: []*agboxv1.SandboxHandle{row.box}}, &fakeCrew{agent: row.agent}, row.gone); err != nil {
					t.Fatal(err)
				}
				s.book.wantProblem(t, row.want)
			})
		})
	}
}

// S5: settling late but in time is no violation; if the daemon never answers, the storm ends with an error.
func TestSettleWaitsThreeMinutes(t *testing.T) {
	for name, row := range map[string]struct {
		until   time.Duration // duration without an answer, or PENDING
		err     error
		problem string
		ends    bool // ends with an error
	}{
		"pending for two minutes":   {2 * time.Minute, nil, "", false},
		"pending for four":          {4 * time.Minute, nil, "sandbox s is SANDBOX_STATE_PENDING", false},
		"no answer for two minutes": {2 * time.Minute, status.Error(codes.Unavailable, "away"), "", false},
		"no answer for four":        {4 * time.Minute, status.Error(codes.Unavailable, "away"), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, start := &storm{book: newBook()}, time.Now()
				api := &fakeAPI{lists: func() ([]*agboxv1.SandboxHandle, error) {
					sb := &agboxv1.SandboxHandle{SandboxId: "s", State: pending}
					if time.Since(start) < row.until {
						return []*agboxv1.SandboxHandle{sb}, row.err
					}
					sb.State = readyBox
					return []*agboxv1.SandboxHandle{sb}, nil
				}}
				if err := s.settle(t.Context(), api, &fakeCrew{}, false); (err != nil) != row.ends {
					t.Errorf("settle: %v", err)
				}
				s.book.wantProblem(t, row.problem)
			})
		})
	}
}

// S8: files that a sandbox leaves on the disk are reported.
func TestTheStormReportsLeftoverFiles(t *testing.T) {
	for left, want := range map[string]string{"": "", "exec-logs/box": "exec-logs/box is left", "s/0123456789abcdef": "s/0123456789abcdef is left"} {
		s := &storm{book: newBook(), site: &site{home: t.TempDir()}}
		for _, dir := range []string{"exec-logs", "s", left} {
			if err := os.MkdirAll(filepath.Join(s.site.state(), dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.nothingLeft(); err != nil {
			t.Fatal(err)
		}
		s.book.wantProblem(t, want)
	}
}
