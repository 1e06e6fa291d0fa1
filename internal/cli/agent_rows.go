package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Widths of an agent's row.
const (
	agentNameWidth    = 16
	agentSandboxWidth = 14
)

func agentHeader(wide bool) []string {
	if wide {
		return []string{"NAME", "STATE", "ACTIVITY", "ID", "SANDBOX", "FORMAT", "QUEUED", "RESTARTS", "ATTEMPTS", "AGE", "STATUS"}
	}
	return []string{"NAME", "STATE", "SANDBOX", "RESTARTS", "AGE", "STATUS"}
}

// noSandbox is shown in place of the name of a deleted sandbox.
const noSandbox = "(deleted)"

// movesText names the sandbox to which an agent moves or for which it waits, or returns "".
func movesText(one *agboxv1.AgentHandle, sandboxes map[string]string) string {
	switch to := sandboxes[one.GetMovesTo()]; {
	case to != "":
		return "moves to " + to
	case one.GetMovesTo() != "":
		return "waits for sandbox " + one.GetMovesTo()
	}
	return ""
}

// agentRow is one row; sandboxes are names by ID.
func agentRow(one *agboxv1.AgentHandle, sandboxes map[string]string, wide bool, now time.Time) []string {
	sandbox := cmp.Or(sandboxes[one.GetSandboxId()], noSandbox)
	trouble := oneLine(strings.Join(nonEmpty([]string{movesText(one, sandboxes), agentTrouble(one)}), "; "))
	old := age(one.GetCreatedAt().AsTime(), now)
	if wide {
		return []string{
			dash(one.GetName()), agentState(one), dash(agentActivity(one)), one.GetAgentId(), sandbox, one.GetFormat(), strconv.Itoa(int(one.GetQueuedPrompts())),
			strconv.FormatUint(restarts(one), 10), strconv.Itoa(int(one.GetAttempts())), old, trouble,
		}
	}
	name := cmp.Or(one.GetName(), one.GetAgentId()[:min(len(one.GetAgentId()), idWidth)])
	return []string{
		clip(name, agentNameWidth), agentState(one), clip(sandbox, agentSandboxWidth), restartsText(one), old, trouble,
	}
}

// agentState returns the state, with "?" if the daemon has not observed the agent since the daemon started.
func agentState(one *agboxv1.AgentHandle) string {
	return enum.Word(one.GetState()) + doubt(one)
}

func agentActivity(one *agboxv1.AgentHandle) string {
	if one.GetActivity() == "" {
		return ""
	}
	return one.GetActivity() + doubt(one)
}

func doubt(one *agboxv1.AgentHandle) string {
	if one.GetUnverified() {
		return "?"
	}
	return ""
}

// restarts returns the number of processes after the first one.
func restarts(one *agboxv1.AgentHandle) uint64 {
	return max(one.GetIncarnation(), 1) - 1
}

// restartsText is "2", or "2 (3 tries)" while starts fail.
func restartsText(one *agboxv1.AgentHandle) string {
	text := strconv.FormatUint(restarts(one), 10)
	if n := one.GetAttempts(); n > 1 {
		text += fmt.Sprintf(" (%d tries)", n)
	}
	return text
}

// agentTrouble returns why an agent is not in its desired state and how many prompts wait for it, or "".
func agentTrouble(one *agboxv1.AgentHandle) string {
	var parts []string
	if one.GetNeedsAttention() {
		parts = append(parts, "needs attention")
	}
	down := one.GetState() == agboxv1.AgentState_AGENT_STATE_STOPPED || one.GetState() == agboxv1.AgentState_AGENT_STATE_FAILED
	up := !down && one.GetState() != agboxv1.AgentState_AGENT_STATE_PENDING
	switch {
	case one.GetDesiredState() == wantDeleted:
		parts = append(parts, "deleting")
	case one.GetDesiredState() == wantStopped && up:
		parts = append(parts, "stopping")
	case one.GetParked() && down:
		parts = append(parts, parkedText(one)...)
	}
	if text := one.GetStatusMessage(); text != "" && !slices.Contains(parts, text) {
		parts = append(parts, text)
	}
	if n := one.GetQueuedPrompts(); n > 0 {
		parts = append(parts, prompts(int(n))+" queued")
	}
	return strings.Join(parts, "; ")
}

// parkedText describes an agent that will start again after a drain, with its sandbox, or after a user's request. What it waits for
// is in its status.
func parkedText(one *agboxv1.AgentHandle) (parts []string) {
	if one.GetStatusMessage() == "" {
		parts = append(parts, "comes back")
	}
	if one.GetSaved() != "" {
		parts = append(parts, "work "+one.GetSaved())
	}
	return parts
}

func prompts(n int) string { return plural(n, "prompt") }

// plural is "1 prompt", "2 prompts".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
