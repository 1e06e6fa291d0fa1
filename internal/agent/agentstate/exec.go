package agentstate

import (
	"strconv"
	"strings"
)

// ExecID is the exec that is the n-th process of an agent. No exec ID of a client has a dot.
func ExecID(agentID string, n uint64) string { return agentID + "." + strconv.FormatUint(n, 10) }

// OfExec returns whose process an exec is, and its number; not ok: it is no agent's.
func OfExec(execID string) (agentID string, n uint64, ok bool) {
	agentID, number, found := strings.Cut(execID, ".")
	n, err := strconv.ParseUint(number, 10, 64)
	return agentID, n, found && err == nil && agentID != "" && n > 0 && ExecID(agentID, n) == execID
}
