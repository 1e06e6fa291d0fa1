package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// What one transaction of a rebuild takes of an agent.
const (
	rebuildOps   = 4096
	rebuildBytes = 1 << 20
)

// RebuildAgent records an agent from what its mirror was handed, in order, which replay calls the function with: state, queue and
// conversation are as they were after the last change. Its sandbox need not be there. A name that another one holds is not
// taken. It takes several transactions, and until the last one nobody sees the agent, so one that was cut off is begun
// again. The mirror is not told: it has it all. rebuilt is false, and no error, for an ID that was ever used: what is there
// is never changed. Errors: replay's; ErrDataLoss when what comes out is no agent, and then nothing is kept of it;
// ErrUnavailable; ctx's.
func (s *Store) RebuildAgent(ctx context.Context, id string, replay func(fn func(*storev1.AgentChange) error) error) (rebuilt bool, err error) {
	r := &agentRebuild{s: s, ctx: ctx, id: id, single: map[storev1.AgentRecordKind][]byte{}}
	if reserved, err := s.AgentReserved(ctx, id); err != nil || reserved {
		return false, err
	}
	err = r.clear()
	if err == nil {
		err = replay(r.take)
	}
	if err == nil {
		err = r.finish()
	}
	if err != nil {
		return false, fmt.Errorf("rebuild agent %s: %w", id, errors.Join(err, r.undo(err)))
	}
	return true, nil
}

// agentRebuild is an agent on its way back.
type agentRebuild struct {
	s      *Store
	ctx    context.Context
	id     string
	single map[storev1.AgentRecordKind][]byte // held back: whoever has them is seen
	ops    []op
	bytes  int
}

func (r *agentRebuild) take(c *storev1.AgentChange) error {
	for _, in := range c.GetOps() {
		if _, one := agentSingles[in.GetKind()]; one {
			r.takeSingle(in)
			continue
		}
		o, err := listOp(r.id, in)
		if err != nil {
			return err
		}
		r.ops = append(r.ops, o)
		if r.bytes += len(o.key) + len(o.value); len(r.ops) >= rebuildOps || r.bytes >= rebuildBytes {
			if err := r.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *agentRebuild) takeSingle(in *storev1.AgentOp) {
	if in.GetDelete() {
		delete(r.single, in.GetKind())
		return
	}
	r.single[in.GetKind()] = in.GetValue()
}

func (r *agentRebuild) flush() error {
	ops := r.ops
	r.ops, r.bytes = nil, 0
	if len(ops) == 0 {
		return nil
	}
	return r.s.update(r.ctx, func(t *txn) error {
		t.fromMirror = true
		for _, o := range ops {
			if err := t.stage(o); err != nil {
				return fmt.Errorf("%w: %w", err, errdefs.ErrDataLoss)
			}
		}
		return nil
	})
}

// clear removes what a rebuild has left that was cut off.
func (r *agentRebuild) clear() error {
	return r.s.update(r.ctx, func(t *txn) error {
		t.fromMirror = true
		for _, prefix := range agentLists {
			if t.tx.Bucket([]byte(prefix+r.id)) == nil {
				continue
			}
			if err := t.stage(op{kind: opDropBucket, bucket: prefix + r.id}); err != nil {
				return err
			}
		}
		return nil
	})
}

// undo takes back what is no agent. What another error has cut off is begun again by the next rebuild.
func (r *agentRebuild) undo(why error) error {
	if !errdefs.IsDataLoss(why) {
		return nil
	}
	return r.clear()
}

func (r *agentRebuild) finish() error {
	if err := r.flush(); err != nil {
		return err
	}
	return r.s.update(r.ctx, func(t *txn) error {
		if get(t.tx, bucketAgentID, []byte(r.id)) != nil {
			return fmt.Errorf("the ID is in use by now: %w", errdefs.ErrDataLoss)
		}
		t.fromMirror = true
		a, err := r.agent(loader{t.tx, t.note})
		if err != nil {
			return err
		}
		if a.Desired.GetRun() != storev1.AgentRun_AGENT_RUN_DELETE && a.Name != "" && t.agentNameHolder(a.Name) != "" {
			a.Name, a.Desired.Name = "", ""
			if r.single[storev1.AgentRecordKind_AGENT_RECORD_KIND_DESIRED], err = encode(a.Desired); err != nil {
				return err
			}
		}
		for kind, v := range r.single {
			if err := t.stage(op{opPut, agentSingles[kind], []byte(r.id), v}); err != nil {
				return err
			}
		}
		t.returned(a)
		return nil
	})
}

// agent decodes what the records make. Errors: ErrDataLoss.
func (r *agentRebuild) agent(l loader) (*Agent, error) {
	a := &Agent{ID: r.id, Spec: &agboxv1.AgentSpec{}, Desired: &agentDesired{}, Status: &agentStatus{}}
	created, err := decodeInt(r.single[storev1.AgentRecordKind_AGENT_RECORD_KIND_ID])
	err = errors.Join(err,
		decode(r.single[storev1.AgentRecordKind_AGENT_RECORD_KIND_CONFIG], a.Spec),
		decode(r.single[storev1.AgentRecordKind_AGENT_RECORD_KIND_DESIRED], a.Desired),
		decode(r.single[storev1.AgentRecordKind_AGENT_RECORD_KIND_STATUS], a.Status))
	d, state := a.Desired, a.Status.GetState()
	_, known := agboxv1.AgentState_name[int32(state)]
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", err, errdefs.ErrDataLoss)
	case len(r.id) > maxAgentIDBytes:
		err = fmt.Errorf("an ID of %d bytes: %w", len(r.id), errdefs.ErrDataLoss)
	case d.GetRun() < storev1.AgentRun_AGENT_RUN_RUN, d.GetRun() > storev1.AgentRun_AGENT_RUN_DELETE, d.GetSandboxId() == "", len(d.GetName()) > maxIDBytes:
		err = fmt.Errorf("no intent in it: %w", errdefs.ErrDataLoss)
	case !known:
		err = fmt.Errorf("state %d is not known: %w", state, errdefs.ErrDataLoss)
	}
	if err != nil {
		return nil, err
	}
	a.CreatedAt, a.Name, a.SandboxID = fromNanos(created), d.GetName(), d.GetSandboxId()
	if state == agboxv1.AgentState_AGENT_STATE_UNSPECIFIED {
		l.fillState(a, a.Status)
	}
	a.Queued = l.countQueued(a)
	return a, nil
}

// returned stages a rebuilt agent as what the index holds.
func (t *txn) returned(a *Agent) {
	t.changes.agents[a.ID] = a
	t.agentsTouched = append(t.agentsTouched, a.ID)
	if a.Name != "" && a.Desired.GetRun() != storev1.AgentRun_AGENT_RUN_DELETE {
		t.changes.agentNames[a.Name] = a.ID
	}
	if sb := t.live(a.SandboxID); sb != nil && !sb.Corrupt {
		sb.Agents = withID(sb.Agents, a.ID)
		t.keep(sb, "")
	}
}
