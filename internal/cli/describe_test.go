package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestDescribeOfAPausedSandbox(t *testing.T) {
	ago := timestamppb.New(time.Now().Add(-3 * time.Hour))
	var out bytes.Buffer
	a := &app{Streams: Streams{Out: &out}}
	a.describeFacts(&agboxv1.SandboxHandle{
		SandboxId: "abcd", State: agboxv1.SandboxState_SANDBOX_STATE_PAUSED, DesiredState: "stopped", StateChangedAt: ago, DemotedAt: ago,
		Timeout: durationpb.New(2 * time.Hour), OnTimeout: "pause", DeadlineAt: ago,
		Rehydrated: &agboxv1.RehydratedDetails{RehydratedAt: ago, Defaulted: []string{"name", "timeout"}},
	})
	at := ago.AsTime().Local().Format(time.RFC3339)
	for _, want := range []string{
		"State:       PAUSED, to be stopped\n", "Since:       " + at + " (3h ago)\n",
		"Demoted:     " + at + " (3h ago), stopped to free its memory; its files are kept\n",
		"Timeout:     2h\n", "On timeout:  pause\n", "Deadline:    " + at + " (3h ago), starts over when it is resumed\n",
		"Rehydrated:  " + at + " (3h ago), guessed: name, timeout\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	if got := rehydrated(&agboxv1.RehydratedDetails{RehydratedAt: ago}); got != at+" (3h ago), everything was known" {
		t.Errorf("got %q", got)
	}
}

func TestDescribeShowsTheMemoryLimitInForce(t *testing.T) {
	own, none := &agboxv1.ServiceSpec{Name: "own", Image: "a", MemoryLimit: "16m"}, &agboxv1.ServiceSpec{Name: "none", Image: "b", PidsLimit: 70}
	for _, row := range []struct {
		spec         *agboxv1.CreateSpec
		defaultBytes int64
		want         []string
	}{
		{&agboxv1.CreateSpec{}, 0, []string{"Limits:      -\n"}},
		{&agboxv1.CreateSpec{}, 64 << 20, []string{"Limits:      memory 64MiB (default)\n"}},
		{&agboxv1.CreateSpec{MemoryLimit: "1g", CpuLimit: 2}, 64 << 20, []string{"Limits:      cpu 2, memory 1g\n"}},
		{
			&agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{own, none}}, 3 << 29,
			[]string{"Limits:      memory 1.5GiB (default)\n", "  memory 16m  ", "  memory 1.5GiB (default), pids 70  "},
		},
	} {
		var out bytes.Buffer
		a := &app{Streams: Streams{Out: &out}}
		a.describeSpec(&agboxv1.SandboxHandle{Spec: row.spec, DefaultMemoryBytes: row.defaultBytes})
		for _, want := range row.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is not in:\n%s", want, out.String())
			}
		}
	}
}

func TestEventsOfLifetimesAreReadable(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	event := func(kind agboxv1.EventType, state agboxv1.SandboxState) *agboxv1.SandboxEvent {
		return &agboxv1.SandboxEvent{Sequence: 7, OccurredAt: timestamppb.New(at), EventType: kind, SandboxState: state}
	}
	const paused, ready, none = agboxv1.SandboxState_SANDBOX_STATE_PAUSED, agboxv1.SandboxState_SANDBOX_STATE_READY, agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED
	phase := func(e *agboxv1.SandboxEvent, reason string) *agboxv1.SandboxEvent {
		e.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{Reason: reason}}
		return e
	}
	timeout := func(d *agboxv1.TimeoutDetails) *agboxv1.SandboxEvent {
		e := event(agboxv1.EventType_SANDBOX_TIMEOUT_SET, none)
		e.Details = &agboxv1.SandboxEvent_TimeoutSet{TimeoutSet: d}
		return e
	}
	rebuilt := func(d *agboxv1.RehydratedDetails) *agboxv1.SandboxEvent {
		e := event(agboxv1.EventType_SANDBOX_REHYDRATED, ready)
		e.Details = &agboxv1.SandboxEvent_Rehydrated{Rehydrated: d}
		return e
	}
	local := at.Local().Format(time.RFC3339)
	for want, e := range map[string]*agboxv1.SandboxEvent{
		"SANDBOX_PAUSE_REQUESTED   READY  reason=timeout":                                phase(event(agboxv1.EventType_SANDBOX_PAUSE_REQUESTED, ready), "timeout"),
		"SANDBOX_PAUSED            PAUSED  reason=demoted":                               phase(event(agboxv1.EventType_SANDBOX_PAUSED, paused), "demoted"),
		"SANDBOX_TIMEOUT_SET       deadline=" + local:                                    timeout(&agboxv1.TimeoutDetails{DeadlineAt: timestamppb.New(at)}),
		"SANDBOX_TIMEOUT_SET       deadline=never":                                       timeout(&agboxv1.TimeoutDetails{}),
		"SANDBOX_REHYDRATED        READY  guessed=name, timeout":                         rebuilt(&agboxv1.RehydratedDetails{Defaulted: []string{"name", "timeout"}}),
		"SANDBOX_REHYDRATED        READY  guessed=nothing  error=CONTAINER_DIED: exit 1": rebuilt(&agboxv1.RehydratedDetails{ErrorCode: "CONTAINER_DIED", ErrorMessage: "exit 1"}),
	} {
		if got := eventLine(e); got != "7     "+local+"  "+want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
