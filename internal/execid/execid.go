// Package execid makes and classifies the IDs of execs, pure. The kind of an exec is in its ID, so that a journal that is found without a
// record tells what it belongs to:
//
//	<agent ID>.<n>    the n-th process of an agent
//	_hook.<i>         the i-th hook of a create
//	_save.<key>       a command that saves an agent's work
//	_summary.<key>    a command that summarizes a conversation
//	_runtime          the command that proves a runtime
//	_main             the main process of a container: it has logs only, no request, lock or journal
//	anything else     a client's
//
// A client's ID begins with a letter or a digit and has no dot (validate.ExecID), so it is none of the others.
package execid

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// Main is the ID that names the logs of the main process of a container.
const Main = "_main"

// Runtime is the ID of the command that proves a runtime.
const Runtime = "_runtime"

const hookPrefix = "_hook."

// Purpose is what a helper, a command that the daemon runs for an agent, is for. It begins the helper's ID.
type Purpose string

// Purposes of helpers.
const (
	ToSave      Purpose = "_save."
	ToSummarize Purpose = "_summary."
)

// ForAgent returns the ID of the n-th process of an agent; n is at least 1.
func ForAgent(agentID string, n uint64) string { return agentID + "." + strconv.FormatUint(n, 10) }

// ForHook returns the ID of a hook; the first has index 0.
func ForHook(index int) string { return hookPrefix + strconv.Itoa(index) }

// ForHelper returns the ID of a helper. It has a digest of key in place of key, which may be long and of any characters.
func ForHelper(p Purpose, key string) string {
	sum := sha256.Sum256([]byte(key))
	return string(p) + hex.EncodeToString(sum[:8])
}

// IsHook reports whether an exec is a hook.
func IsHook(id string) bool { return strings.HasPrefix(id, hookPrefix) }

// IsHelper reports whether an exec is a helper.
func IsHelper(id string) bool {
	return strings.HasPrefix(id, string(ToSave)) || strings.HasPrefix(id, string(ToSummarize))
}

// OfAgent returns the agent whose process an exec is, and the number of the process; not ok: it is no agent's.
func OfAgent(id string) (agentID string, n uint64, ok bool) {
	agentID, number, found := strings.Cut(id, ".")
	n, err := strconv.ParseUint(number, 10, 64)
	if !found || err != nil || n == 0 || agentID == "" || Internal(id) || ForAgent(agentID, n) != id {
		return "", 0, false
	}
	return agentID, n, true
}

// Internal reports whether an ID is of an exec of the daemon's own, or Main.
func Internal(id string) bool { return strings.HasPrefix(id, "_") }
