package store

import (
	"fmt"

	"github.com/containerd/errdefs"
)

func refuseAgent(reason, id string, class error, format string, args ...any) error {
	return refuse("agent_id", id, reason, class, format, args...)
}

func agentNotFound(id string) error {
	return refuseAgent("AGENT_NOT_FOUND", id, errdefs.ErrNotFound, "agent %s was not found", id)
}

func agentExists(id string) error {
	return refuseAgent("AGENT_ID_ALREADY_EXISTS", id, errdefs.ErrAlreadyExists, "agent_id %s already exists", id)
}

func agentNameExists(id, name string) error {
	return refuseAgent("AGENT_NAME_ALREADY_EXISTS", id, errdefs.ErrAlreadyExists, "agent name %s already exists", name)
}

func agentBeingDeleted(id string) error {
	return refuseAgent("AGENT_INVALID_STATE", id, errdefs.ErrFailedPrecondition, "agent %s is being deleted", id)
}

func agentSandboxBeingDeleted(id, sandboxID string) error {
	return refuseAgent("AGENT_INVALID_STATE", id, errdefs.ErrFailedPrecondition, "sandbox %s is being deleted", sandboxID)
}

func agentNotBusy(id string) error {
	return refuseAgent("AGENT_INVALID_STATE", id, errdefs.ErrFailedPrecondition, "agent %s is not busy", id)
}

func agentsFull(id, sandboxID string) error {
	return refuseAgent("AGENTS_FULL", id, errdefs.ErrResourceExhausted, "sandbox %s has %d agents", sandboxID, maxAgents)
}

func promptExists(id, promptID string) error {
	return refuseAgent("PROMPT_ID_ALREADY_EXISTS", id, errdefs.ErrAlreadyExists, "prompt_id %s already exists", promptID)
}

func promptsFull(id string, n int) error {
	return refuseAgent("AGENT_PROMPTS_FULL", id, errdefs.ErrResourceExhausted, "agent %s has %d prompts queued", id, n)
}

func agentSequenceExpired(id string, from, oldest uint64) error {
	return refuseSequence("agent", "AGENT_EVENT_SEQUENCE_EXPIRED", id, from, oldest)
}

func corruptAgent(id string) error {
	return fmt.Errorf("record of agent %s does not decode: %w", id, errdefs.ErrDataLoss)
}

// agentMoved refuses a report of an older incarnation or version, or one that a newer intent overrides.
func agentMoved(id, format string, args ...any) error {
	return fmt.Errorf("agent %s: %s: %w", id, fmt.Sprintf(format, args...), errdefs.ErrAborted)
}
