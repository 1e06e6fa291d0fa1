package store

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// InitialPromptID is the prompt ID of a spec's initial prompt. Clients cannot choose it.
const InitialPromptID = "initial.1"

// CreateAgent reserves id, and name unless it is empty, and records spec, intent and a PENDING agent of a live sandbox, with the initial
// prompt as the first in its queue. Errors: Refusals AGENT_ID_ALREADY_EXISTS (also for the ID of a removed agent),
// AGENT_NAME_ALREADY_EXISTS, SANDBOX_NOT_FOUND, AGENT_INVALID_STATE when the sandbox is deleted or its delete was requested, and
// AGENTS_FULL beyond 1,000 agents of a sandbox; ErrInvalidArgument; ErrDataLoss; ErrUnavailable.
func (s *Store) CreateAgent(ctx context.Context, id, name string, spec *agboxv1.AgentSpec) (Agent, error) {
	a, err := newAgent(id, name, spec)
	if err != nil {
		return Agent{}, err
	}
	return changedAgent(updated(ctx, s, func(t *txn) (*agentDraft, error) { return t.createAgent(a) }))
}

// CheckCreateAgent returns the error that CreateAgent would return, and records nothing. Errors: as CreateAgent.
func (s *Store) CheckCreateAgent(ctx context.Context, id, name string, spec *agboxv1.AgentSpec) error {
	a, err := newAgent(id, name, spec)
	if err != nil {
		return err
	}
	return s.update(ctx, func(t *txn) error {
		_, err := t.mayCreateAgent(a)
		return err
	})
}

// changedAgent returns a copy of the agent that an update has changed.
func changedAgent(d *agentDraft, err error) (Agent, error) {
	if err != nil {
		return Agent{}, err
	}
	return d.copied(), nil
}

func newAgent(id, name string, spec *agboxv1.AgentSpec) (*Agent, error) {
	switch {
	case id == "", len(id) > maxAgentIDBytes, strings.ContainsRune(id, '.'):
		return nil, fmt.Errorf("agent ID of %d bytes, or with a dot: %w", len(id), errdefs.ErrInvalidArgument)
	case spec == nil, len(name) > maxIDBytes, checkID("sandbox ID", spec.GetSandboxId()) != nil:
		return nil, fmt.Errorf("create agent %s: no spec, no sandbox, or a name of %d bytes: %w", id, len(name), errdefs.ErrInvalidArgument)
	}
	run := storev1.AgentRun_AGENT_RUN_RUN
	if spec.GetDesiredState() == "stopped" {
		run = storev1.AgentRun_AGENT_RUN_STOP
	}
	return &Agent{
		ID: id, Name: name, SandboxID: spec.GetSandboxId(), Spec: proto.CloneOf(spec),
		Desired: proto.CloneOf(&agentDesired{Run: run, Generation: 1, Name: name, SandboxId: spec.GetSandboxId()}),
		Status:  &agentStatus{},
	}, nil
}

func (t *txn) createAgent(a *Agent) (*agentDraft, error) {
	sb, err := t.mayCreateAgent(a)
	if err != nil {
		return nil, err
	}
	d := t.draft(a)
	nanos := t.now.UnixNano()
	d.CreatedAt, d.Desired.RequestedAt, d.wake = fromNanos(uint64(nanos)), nanos, true
	d.begin()
	if text := a.Spec.GetInitialPrompt(); text != "" {
		if err := d.queue(InitialPromptID, text); err != nil {
			return nil, err
		}
		d.Status.InitialPrompted = true
	}
	sb.Agents = withID(sb.Agents, a.ID)
	t.changes.sandboxes[sb.ID] = sb
	if a.Name != "" {
		t.changes.agentNames[a.Name] = a.ID
	}
	t.putInt(bucketAgentID, a.ID, uint64(nanos))
	t.put(bucketAgentConfig, a.ID, d.Spec)
	d.save()
	return d, nil
}

// mayCreateAgent returns a draft of the agent's sandbox if the agent can be created in it.
func (t *txn) mayCreateAgent(a *Agent) (*Sandbox, error) {
	sb, err := t.mayHold(a.ID, a.SandboxID)
	if err != nil {
		return nil, err
	}
	switch {
	case get(t.tx, bucketAgentID, []byte(a.ID)) != nil, t.hasExecOf(a.ID):
		return nil, agentExists(a.ID)
	case a.Name != "" && t.agentNameHolder(a.Name) != "":
		return nil, refuse("agent_id", a.ID, "AGENT_NAME_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "agent name %s already exists", a.Name)
	case len(sb.Agents) >= maxAgents:
		return nil, agentsFull(a.ID, sb.ID)
	}
	return sb, nil
}

// hasExecOf reports whether an exec of an agent with this ID was ever recorded. After a loss of the database, recovery from Docker's
// labels rebuilds execs but no agents.
func (t *txn) hasExecOf(id string) bool {
	b := t.tx.Bucket([]byte(bucketExecID))
	if b == nil {
		return false
	}
	prefix := []byte(id + ".")
	k, _ := b.Cursor().Seek(prefix)
	return bytes.HasPrefix(k, prefix)
}

func (t *txn) agentNameHolder(name string) string {
	return latest(t.group.agentNames, t.index.agentNames, name)
}
