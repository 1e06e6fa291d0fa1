package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/internal/termsafe"
)

// rowStyle is a choice of columns, which all start with NAME, ID and STATE.
type rowStyle int

const (
	quiet rowStyle = iota // every sandbox is at rest
	noisy                 // the reason for some is shown in place of the image
	full                  // -o wide
)

func (s rowStyle) header() []string {
	switch s {
	case noisy:
		return []string{"NAME", "ID", "STATE", "EXECS", "AGE", "STATUS"}
	case full:
		return []string{"NAME", "ID", "STATE", "EXECS", "AGE", "DEADLINE", "RESTARTS", "IMAGE", "PORTS", "STATUS"}
	}
	return []string{"NAME", "ID", "STATE", "EXECS", "AGE", "IMAGE"}
}

// Columns that change with time alone. Only the full style has a deadline.
const ageColumn, deadlineColumn = 4, 5

func (s rowStyle) row(sb *agboxv1.SandboxHandle) []string {
	name, id := dash(sb.GetName()), sb.GetSandboxId()
	if s != full {
		name, id = clip(name, nameWidth), id[:min(len(id), idWidth)]
	}
	row := []string{name, id, enum.Word(sb.GetState()), strconv.Itoa(int(sb.GetActiveExecs())), age(sb.GetCreatedAt().AsTime(), time.Now())}
	switch s {
	case quiet:
		return append(row, clip(sb.GetImage(), imageWidth))
	case noisy:
		if sb.GetErrorMessage() != "" {
			return append(row, termsafe.Line(sb.GetErrorMessage())) // the code would fill the line
		}
		return append(row, termsafe.Line(trouble(sb)))
	}
	return append(row, timeLeft(sb, time.Now()), strconv.Itoa(int(sb.GetRestarts())), sb.GetImage(), dash(strings.Join(portList(sb.GetPorts()), ",")),
		termsafe.Line(cmp.Or(trouble(sb), demoted(sb))))
}

// news returns the cells of a row that do not change with time alone.
func (s rowStyle) news(sb *agboxv1.SandboxHandle, row []string) string {
	row = slices.Clone(row)
	row[ageColumn] = ""
	if s == full {
		row[deadlineColumn] = sb.GetDeadlineAt().String()
	}
	return strings.Join(row, "\x00")
}

// timeLeft is "1h23m", "passed", or "-" without a deadline.
func timeLeft(sb *agboxv1.SandboxHandle, now time.Time) string {
	switch at := sb.GetDeadlineAt(); {
	case at == nil:
		return "-"
	case at.AsTime().After(now):
		return span(at.AsTime().Sub(now))
	}
	return "passed"
}

// demoted returns a note for a PAUSED sandbox that was stopped.
func demoted(sb *agboxv1.SandboxHandle) string {
	return textIf(sb.GetDemotedAt() != nil, "demoted: stopped to free its memory")
}

func dash(s string) string { return cmp.Or(s, "-") }

// portList is "127.0.0.1:49153->8080/tcp", with the service's name in front of a service's ports.
func portList(ports []*agboxv1.PublishedPort) (all []string) {
	for _, p := range ports {
		service := given("", p.GetServiceName(), "=")
		all = append(all, fmt.Sprintf("%s127.0.0.1:%d->%d/%s", service, p.GetHostPort(), p.GetContainerPort(), p.GetProtocol()))
	}
	return all
}

// trouble returns why a sandbox is not at rest, or "".
func trouble(sb *agboxv1.SandboxHandle) string {
	switch {
	case sb.GetErrorCode() != "":
		return sb.GetErrorCode() + ": " + sb.GetErrorMessage()
	case sb.GetStatusMessage() != "":
		return sb.GetStatusMessage()
	case sb.GetDesiredState() == wantStopped:
		return "stopping"
	case sb.GetDesiredState() == wantPaused:
		return "pausing"
	}
	return failedServices(sb)
}

func failedServices(sb *agboxv1.SandboxHandle) string {
	var names []string
	for _, s := range sb.GetServices() {
		if s.GetState() == serviceFailed && sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_READY {
			names = append(names, s.GetName())
		}
	}
	return given("service failed: ", strings.Join(names, ", "), "")
}

// serviceFailed is the ServiceStatus.state of a failed service.
const serviceFailed = "FAILED"

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
	trouble := termsafe.Line(strings.Join(nonEmpty([]string{movesText(one, sandboxes), agentTrouble(one)}), "; "))
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
	return given("", one.GetActivity(), doubt(one))
}

func doubt(one *agboxv1.AgentHandle) string {
	return textIf(one.GetUnverified(), "?")
}

// restarts returns the number of processes after the first one.
func restarts(one *agboxv1.AgentHandle) uint64 {
	return max(one.GetIncarnation(), 1) - 1
}

// restartsText is "2", or "2 (3 tries)" while starts fail.
func restartsText(one *agboxv1.AgentHandle) string {
	n := one.GetAttempts()
	return strconv.FormatUint(restarts(one), 10) + textIf(n > 1, fmt.Sprintf(" (%d tries)", n))
}

// agentTrouble returns why an agent is not in its desired state and how many prompts wait for it, or "".
func agentTrouble(one *agboxv1.AgentHandle) string {
	parts := []string{textIf(one.GetNeedsAttention(), "needs attention")}
	down := one.GetState() == agboxv1.AgentState_AGENT_STATE_STOPPED || one.GetState() == agboxv1.AgentState_AGENT_STATE_FAILED
	up := !down && one.GetState() != agboxv1.AgentState_AGENT_STATE_PENDING
	switch {
	case one.GetDesiredState() == wantDeleted:
		parts = append(parts, "deleting")
	case one.GetDesiredState() == wantStopped && up:
		parts = append(parts, "stopping")
	case one.GetParked() && down: // it starts after a drain, with its sandbox or on request; its status says what it waits for
		parts = append(parts, textIf(one.GetStatusMessage() == "", "restarts automatically"), given("work ", one.GetSaved(), ""))
	}
	if text := one.GetStatusMessage(); !slices.Contains(parts, text) {
		parts = append(parts, text)
	}
	queued, held := one.GetQueuedPrompts(), one.GetHeldPrompts()
	return strings.Join(nonEmpty(append(parts,
		textIf(queued > 0, prompts(int(queued))+" queued"), textIf(held > 0, prompts(int(held))+" held: "+one.GetHeldReason()),
	)), "; ")
}

func prompts(n int) string { return plural(n, "prompt") }

// given is an optional part of a text: "" without the text.
func given(before, text, after string) string {
	return textIf(text != "", before+text+after)
}

func textIf(holds bool, text string) string {
	if !holds {
		return ""
	}
	return text
}

// plural is "1 prompt", "2 prompts".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
