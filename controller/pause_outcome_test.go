package controller_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/apis/enum"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// outcome returns the sandbox's state with its details, and the exec's.
func (p *player) outcome(t *testing.T) string {
	t.Helper()
	sb := p.sandbox(t, "box-0")
	words := []string{enum.Word(sb.State)}
	switch {
	case sb.ErrorCode != "":
		words = append(words, sb.ErrorCode)
	case sb.Desired.GetDemotedAt() != 0:
		words = append(words, "demoted")
	}
	words = append(words, p.deadline(sb))
	for _, id := range p.execs {
		ex, err := p.store.Exec(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		end := "goes-on"
		if ex.End != nil {
			end = enum.Word(agboxv1.ExecState(ex.End.GetState()))
		}
		words = append(words, end)
	}
	return strings.Join(words, " ")
}

// deadline distinguishes the deadline of the start from none and from later ones.
func (p *player) deadline(sb store.Sandbox) string {
	at, begun := sb.Desired.GetDeadlineAt(), time.Time{}
	events, _ := p.store.Events(context.Background(), sb.ID, 0, 256)
	for _, e := range events {
		if e.GetEventType() == agboxv1.EventType_SANDBOX_READY && begun.IsZero() {
			begun = e.GetOccurredAt().AsTime()
		}
	}
	switch {
	case sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE:
		return "-"
	case at == 0:
		return "never"
	case sb.Desired.GetDeadlineSet():
		return "set"
	case time.Unix(0, at).Sub(begun).Round(time.Second) == lifetime:
		return "kept"
	}
	return "new"
}

// history returns all events of the sandbox itself and its services.
func (p *player) history(t *testing.T) string {
	t.Helper()
	events, err := p.store.Events(t.Context(), "box-0", 0, 256)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, e := range events {
		row := strings.TrimPrefix(e.GetEventType().String(), "SANDBOX_")
		if s := e.GetService().GetServiceName(); s != "" {
			row += "(" + s + ")"
		}
		if r := e.GetSandboxPhase().GetReason(); r != "" {
			row += "(" + r + ")"
		}
		if e.GetExec() == nil {
			rows = append(rows, row)
		}
	}
	return strings.Join(rows, " ")
}
