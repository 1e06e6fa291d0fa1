package store

import (
	"fmt"
	"strconv"

	"github.com/containerd/errdefs"
)

// Refusal is an error whose text and reason are part of the API's contract.
type Refusal struct {
	// Reason as in google.rpc.ErrorInfo, such as SANDBOX_NAME_ALREADY_EXISTS.
	Reason string
	// Metadata of the ErrorInfo: sandbox_id or exec_id, and the sequences of a sequence error.
	Metadata map[string]string
	// Message is a sentence for the client.
	Message string
	// Class is the containerd/errdefs value.
	Class error
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// Unwrap returns the class.
func (r *Refusal) Unwrap() error { return r.Class }

func refuse(idKey, id, reason string, class error, format string, args ...any) error {
	return &Refusal{Reason: reason, Metadata: map[string]string{idKey: id}, Message: fmt.Sprintf(format, args...), Class: class}
}

// refusal returns a function that refuses with a message about the ID.
func refusal(idKey, reason string, class error, format string) func(id string) error {
	return func(id string) error { return refuse(idKey, id, reason, class, format, id) }
}

// The refusals that say nothing but the ID.
var (
	sandboxNotFound   = refusal("sandbox_id", "SANDBOX_NOT_FOUND", errdefs.ErrNotFound, "sandbox %s was not found")
	sandboxExists     = refusal("sandbox_id", "SANDBOX_ID_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "sandbox_id %s already exists")
	notStopped        = refusal("sandbox_id", "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox %s is not stopped")
	createUnfinished  = refusal("sandbox_id", "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "the create of sandbox %s has not ended: it continues when the engine shows the primary container; if that container is gone, delete the sandbox")
	notReady          = refusal("sandbox_id", "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox %s is not ready")
	alreadyPaused     = refusal("sandbox_id", "SANDBOX_ALREADY_PAUSED", errdefs.ErrFailedPrecondition, "sandbox %s is already paused")
	notRunning        = refusal("sandbox_id", "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox %s is not running")
	beingDeleted      = refusal("sandbox_id", "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox %s is being deleted")
	notReadyToExec    = refusal("sandbox_id", "SANDBOX_NOT_READY", errdefs.ErrFailedPrecondition, "sandbox %s is not ready")
	hasNoShim         = refusal("sandbox_id", "SANDBOX_ADOPTED", errdefs.ErrFailedPrecondition, "sandbox %s was created by an older daemon and its container has no agbox-shim, so agboxd can't run commands in it: save its files with docker cp or docker exec, and create it again")
	execExists        = refusal("exec_id", "EXEC_ID_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "exec_id %s already exists")
	execNotFound      = refusal("exec_id", "EXEC_NOT_FOUND", errdefs.ErrNotFound, "exec %s was not found")
	execTerminal      = refusal("exec_id", "EXEC_ALREADY_TERMINAL", errdefs.ErrFailedPrecondition, "exec %s is already terminal")
	agentNotFound     = refusal("agent_id", "AGENT_NOT_FOUND", errdefs.ErrNotFound, "agent %s was not found")
	agentExists       = refusal("agent_id", "AGENT_ID_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "agent_id %s already exists")
	agentBeingDeleted = refusal("agent_id", "AGENT_INVALID_STATE", errdefs.ErrFailedPrecondition, "agent %s is being deleted")
	agentNotBusy      = refusal("agent_id", "AGENT_INVALID_STATE", errdefs.ErrFailedPrecondition, "agent %s is not busy")
)

// refuseSequence refuses to read the history of a sandbox or an agent from a sequence.
func refuseSequence(what, reason, id string, from, oldest uint64) error {
	return &Refusal{
		Reason: reason,
		Metadata: map[string]string{
			what + "_id": id, "from_sequence": strconv.FormatUint(from, 10), "oldest_sequence": strconv.FormatUint(oldest, 10),
		},
		Message: fmt.Sprintf("%s %s event sequence %d is outside retained history", what, id, from),
		Class:   errdefs.ErrOutOfRange,
	}
}

// RefuseResume refuses a resume for a reason that the store does not know: SANDBOX_INVALID_STATE, with the reason also in the metadata key
// "refusal".
func RefuseResume(id, why string) error {
	return &Refusal{
		Class: errdefs.ErrFailedPrecondition, Reason: "SANDBOX_INVALID_STATE",
		Message:  fmt.Sprintf("sandbox %s can't be resumed: %s", id, why),
		Metadata: map[string]string{"sandbox_id": id, "refusal": why},
	}
}

// RefuseFreeze refuses to freeze a sandbox on an engine that can't: ENGINE_CANNOT_FREEZE.
func RefuseFreeze(id, why, instead string) error {
	return &Refusal{
		Class: errdefs.ErrFailedPrecondition, Reason: "ENGINE_CANNOT_FREEZE",
		Message:  fmt.Sprintf("sandbox %s can't be frozen: %s. %s", id, why, instead),
		Metadata: map[string]string{"sandbox_id": id},
	}
}

func corruptSandbox(id string) error {
	return fmt.Errorf("record of sandbox %s does not decode: %w", id, errdefs.ErrDataLoss)
}

func promptsFull(a *Agent) error {
	return refuse("agent_id", a.ID, "AGENT_PROMPTS_FULL", errdefs.ErrResourceExhausted, "agent %s has %d prompts queued", a.ID, a.Queued)
}

func promptNotFound(id, prompt string) error {
	return refuse("agent_id", id, "PROMPT_NOT_FOUND", errdefs.ErrNotFound, "prompt %s of agent %s was not found", prompt, id)
}

func agentSandboxBeingDeleted(id, sandboxID string) error {
	return refuse("agent_id", id, "AGENT_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox %s is being deleted", sandboxID)
}

func agentsFull(id, sandboxID string) error {
	return refuse("agent_id", id, "AGENTS_FULL", errdefs.ErrResourceExhausted, "sandbox %s has %d agents", sandboxID, maxAgents)
}

func corruptAgent(id string) error {
	return fmt.Errorf("record of agent %s does not decode: %w", id, errdefs.ErrDataLoss)
}

// agentMoved refuses a report of an older incarnation or version, or one that a newer intent overrides.
func agentMoved(id, format string, args ...any) error {
	return fmt.Errorf("agent %s: %s: %w", id, fmt.Sprintf(format, args...), errdefs.ErrAborted)
}
