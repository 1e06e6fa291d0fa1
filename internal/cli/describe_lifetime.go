package cli

import (
	"fmt"
	"strings"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// describeLifetime shows the deadline of the sandbox, whether a pause was demoted, and whether the record was rebuilt.
func (a *app) describeLifetime(sb *agboxv1.SandboxHandle) {
	if sb.GetDemotedAt() != nil {
		a.fact("Demoted", when(sb.GetDemotedAt())+", stopped to free its memory; its files are kept")
	}
	a.fact("Timeout", timeoutLength(sb))
	a.factIf("On timeout", sb.GetOnTimeout())
	a.factIf("Deadline", deadlineText(sb, time.Now()))
	if r := sb.GetRehydrated(); r != nil {
		a.fact("Rehydrated", rehydrated(r))
	}
}

func timeoutLength(sb *agboxv1.SandboxHandle) string {
	if d := sb.GetTimeout().AsDuration(); d > 0 {
		return span(d)
	}
	return never
}

// deadlineText is "2026-12-01T11:00:00+01:00 (in 1h23m)", or "" without a deadline.
func deadlineText(sb *agboxv1.SandboxHandle, now time.Time) string {
	if sb.GetDeadlineAt() == nil {
		return ""
	}
	at := sb.GetDeadlineAt().AsTime()
	text := fmt.Sprintf("%s (%s)", at.Local().Format(time.RFC3339), ahead(at, now))
	if sb.GetState() != agboxv1.SandboxState_SANDBOX_STATE_PAUSED {
		return text
	}
	if at.After(now) {
		return text + notWhilePaused
	}
	return text + ", starts over when it is resumed"
}

// rehydrated says when a record was rebuilt and which fields were guessed.
func rehydrated(r *agboxv1.RehydratedDetails) string {
	if len(r.GetDefaulted()) == 0 {
		return when(r.GetRehydratedAt()) + ", everything was known"
	}
	return when(r.GetRehydratedAt()) + ", guessed: " + oneLine(strings.Join(r.GetDefaulted(), ", "))
}
