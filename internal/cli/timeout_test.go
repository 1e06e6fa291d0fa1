package cli

import (
	"errors"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

func TestSpanHasTwoUnitsAtMost(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 59*time.Second + 600*time.Millisecond: "1m", 12*time.Minute + 30*time.Second: "12m30s",
		time.Hour: "1h", 2*time.Hour - time.Millisecond: "2h", 83 * time.Minute: "1h23m", 47 * time.Hour: "47h", 2 * day: "2d",
		76 * time.Hour: "3d4h",
	} {
		if got := span(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}

func TestTimeoutIsReadInThreeForms(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]client.Timeout{
		"never": {}, "0": {}, "90m": {After: 90 * time.Minute}, "2030-01-02T03:04:05Z": {At: at},
		"2030-01-02T04:04:05+01:00": {At: at},
	} {
		got, err := parseTimeout(&cobra.Command{}, text)
		if err != nil || got.After != want.After || !got.At.Equal(want.At) {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1h", "2w", "tomorrow", "2030-01-02", "2030-01-02T03:04:05"} {
		var usage *usageError
		if got, err := parseTimeout(&cobra.Command{}, text); !errors.As(err, &usage) {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

func TestLifetimeOfASandboxInWords(t *testing.T) {
	now := time.Now()
	local := func(d time.Duration) string { return now.Add(d).Local().Format(time.RFC3339) }
	for name, tc := range map[string]struct {
		state                agboxv1.SandboxState
		after                time.Duration
		text, described, row string
	}{
		"ahead": {agboxv1.SandboxState_SANDBOX_STATE_READY, time.Hour, "will be deleted at " + local(time.Hour) + ", in 1h", local(time.Hour) + " (in 1h)", "1h"},
		"past, and its action is tried again": {
			agboxv1.SandboxState_SANDBOX_STATE_READY, -time.Minute,
			"will be deleted at " + local(-time.Minute) + ", 60s ago", local(-time.Minute) + " (60s ago)", "passed",
		},
		"ahead, but paused": {
			agboxv1.SandboxState_SANDBOX_STATE_PAUSED, time.Hour,
			"will be deleted at " + local(time.Hour) + ", in 1h", local(time.Hour) + " (in 1h), not while it is PAUSED", "1h",
		},
		"past, and paused": {
			agboxv1.SandboxState_SANDBOX_STATE_PAUSED, -time.Minute,
			"will be deleted at " + local(-time.Minute) + ", 60s ago", local(-time.Minute) + " (60s ago), starts over when it is resumed", "passed",
		},
	} {
		at := now.Add(tc.after)
		sb := &agboxv1.SandboxHandle{State: tc.state, OnTimeout: "delete", Timeout: durationpb.New(time.Hour), DeadlineAt: timestamppb.New(at)}
		if got := timeoutText(sb, at, now); got != tc.text {
			t.Errorf("%s: got %q, want %q", name, got, tc.text)
		}
		if got := deadlineText(sb, now); got != tc.described {
			t.Errorf("%s: got %q, want %q", name, got, tc.described)
		}
		if got := timeLeft(sb, now); got != tc.row {
			t.Errorf("%s: got %q, want %q", name, got, tc.row)
		}
	}
	none := &agboxv1.SandboxHandle{}
	if timeoutText(none, time.Time{}, now) != "has no end" || deadlineText(none, now) != "" || timeLeft(none, now) != "-" || timeoutLength(none) != never {
		t.Error("a sandbox without a deadline has one")
	}
}

func TestAnApproachingDeadlineIsNoChange(t *testing.T) {
	sb := &agboxv1.SandboxHandle{SandboxId: "abcd", DeadlineAt: timestamppb.New(time.Now().Add(time.Hour))}
	row := full.row(sb)
	later := full.row(sb)
	later[ageColumn], later[deadlineColumn] = "9d", "1s"
	if full.header()[deadlineColumn] != "DEADLINE" || full.header()[ageColumn] != "AGE" || full.news(sb, row) != full.news(sb, later) {
		t.Errorf("got %q and %q", full.news(sb, row), full.news(sb, later))
	}
	before := full.news(sb, row)
	sb.DeadlineAt = timestamppb.New(time.Now().Add(2 * time.Hour))
	if full.news(sb, row) == before {
		t.Error("a deadline that was moved is no news")
	}
}
