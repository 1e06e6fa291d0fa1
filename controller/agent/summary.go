package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/conversation"
	"github.com/agbox/agbox/internal/execid"
)

const (
	// summaryTime bounds a summary command; it is part of the contract.
	summaryTime = 30 * time.Second
	// maxSummary bounds the bytes of a summary that are kept; the context has room for less.
	maxSummary = 64 << 10
)

// observeSummary checks whether the older turns must be summarized before the next prompt, and reads the result. If the summary fails, the
// digest takes its place.
func (v *Observation) observeSummary(ctx context.Context) error {
	command := v.a.Spec.GetContext().GetSummaryCommand()
	if len(command) == 0 || v.a.Status.GetState() != agboxv1.AgentState_AGENT_STATE_IDLE || v.a.Queued == 0 || !v.World.SandboxUp ||
		v.World.Draining {
		return nil
	}
	size, err := v.o.files.InboxSize(v.a.SandboxID, v.ExecID)
	if err != nil || !v.givesPast(size) {
		return err
	}
	h := v.summaryHelper()
	end, err := v.observeEnd(h)
	switch {
	case err != nil:
		return fmt.Errorf("read its summary command: %w", err)
	case end == helperDone:
		return v.readSummary(h.request.ExecID)
	case end != helperRuns && end != helperAbsent:
		return nil
	}
	v.older, err = v.olderTurns(ctx)
	v.World.Summarizing = len(v.older) > 0 || v.memory().waited(h.request.ExecID) > 0
	return err
}

func (v *Observation) readSummary(execID string) error {
	text, err := v.o.files.Tail(v.a.SandboxID, execID, false, maxSummary)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("read its summary: %w", err)
	}
	v.summary = strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD"))
	return nil
}

// olderTurns returns the turns that the context would contain as a digest, as JSON lines.
func (v *Observation) olderTurns(ctx context.Context) ([]byte, error) {
	events, err := v.events(ctx)
	if err != nil {
		return nil, err
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	policy := v.a.Spec.GetContext()
	for _, t := range conversation.Older(conversation.Reconstruct(events), conversation.Checkpoint(events), policy) {
		if err := enc.Encode(t); err != nil {
			return nil, fmt.Errorf("encode a turn: %w", err)
		}
	}
	return lines.Bytes(), nil
}

// summaryHelper returns the summary command.
func (v *Observation) summaryHelper() helper {
	h := v.helper(execid.ToSummarize, v.a.Spec.GetContext().GetSummaryCommand(), summaryTime)
	h.request.Inbox = true
	return h
}

// summarize requests the summary. After a crash there may be more turns than those that the earlier daemon had summarized; its summary is
// still used.
func (p *pass) summarize() error {
	h := p.summaryHelper()
	h.stdin = p.older
	err := p.r.startHelper(h)
	if errdefs.IsFailedPrecondition(err) {
		return p.r.endHelper(h)
	}
	return err
}
