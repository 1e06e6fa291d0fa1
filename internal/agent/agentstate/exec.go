package agentstate

import (
	"strconv"
	"strings"
)

// ExecID returns the exec ID of an agent's n-th process. No client's exec ID contains a dot.
func ExecID(agentID string, n uint64) string { return agentID + "." + strconv.FormatUint(n, 10) }

// OfExec returns the agent and the number of a process by its exec ID; ok is false if it is not an agent's.
func OfExec(execID string) (agentID string, n uint64, ok bool) {
	agentID, number, found := strings.Cut(execID, ".")
	n, err := strconv.ParseUint(number, 10, 64)
	return agentID, n, found && err == nil && agentID != "" && n > 0 && ExecID(agentID, n) == execID
}
