package store

import (
	"maps"
	"sync"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// facts is the state derived from the buckets: live sandboxes and agents, held names and active execs. As a change to other facts, nil and
// "" mean removed. Its sandboxes and agents are immutable: a change replaces them.
type facts struct {
	sandboxes map[string]*Sandbox
	names     map[string]string // name -> sandbox ID
	execs     map[string]string // active exec -> sandbox ID

	agents     map[string]*Agent
	agentNames map[string]string // name -> agent ID
}

func newFacts() facts {
	return facts{
		sandboxes: map[string]*Sandbox{}, names: map[string]string{}, execs: map[string]string{},
		agents: map[string]*Agent{}, agentNames: map[string]string{},
	}
}

// merge applies changes to f. It keeps their removals as nil and "", because f may itself be a change.
func (f facts) merge(changes facts) {
	for id, sb := range changes.sandboxes {
		f.sandboxes[id] = sb
	}
	for name, id := range changes.names {
		f.names[name] = id
	}
	for execID, id := range changes.execs {
		f.execs[execID] = id
	}
	maps.Copy(f.agents, changes.agents)
	maps.Copy(f.agentNames, changes.agentNames)
}

// prune deletes the entries that changes removed.
func (f facts) prune(changes facts) {
	for id, sb := range changes.sandboxes {
		if sb == nil {
			delete(f.sandboxes, id)
		}
	}
	for name, id := range changes.names {
		if id == "" {
			delete(f.names, name)
		}
	}
	for execID, id := range changes.execs {
		if id == "" {
			delete(f.execs, execID)
		}
	}
	for id, a := range changes.agents {
		if a == nil {
			delete(f.agents, id)
		}
	}
	for name, id := range changes.agentNames {
		if id == "" {
			delete(f.agentNames, name)
		}
	}
}

// index holds the published facts. Only the writer changes them, after a commit.
type index struct {
	mu sync.RWMutex
	facts
}

func (x *index) publish(changes facts) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.merge(changes)
	x.prune(changes)
}

func (x *index) sandbox(id string) (*Sandbox, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	sb, ok := x.sandboxes[id]
	return sb, ok
}

// all returns the live sandboxes, unordered.
func (x *index) all() []*Sandbox {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := make([]*Sandbox, 0, len(x.sandboxes))
	for _, sb := range x.sandboxes {
		out = append(out, sb)
	}
	return out
}

// copied returns a deep copy.
func (sb *Sandbox) copied() Sandbox {
	c := *sb
	if sb.Spec != nil {
		c.Spec = proto.CloneOf(sb.Spec)
	}
	if sb.Desired != nil {
		c.Desired = proto.CloneOf(sb.Desired)
	}
	if sb.Progress != nil {
		c.Progress = proto.CloneOf(sb.Progress)
	}
	c.ActiveExecs = append([]string(nil), sb.ActiveExecs...)
	c.Agents = append([]string(nil), sb.Agents...)
	return c
}

func (sb *Sandbox) matches(labels map[string]string) bool {
	have := sb.Spec.GetLabels()
	for k, want := range labels {
		if v, ok := have[k]; !ok || v != want {
			return false
		}
	}
	return true
}

// advance applies one event to the derived state, and reports whether it started a new run of a state. The caller has updated ActiveExecs;
// settle updates IdleSince. load.go derives the same state from the file; the model test compares the two.
func (sb *Sandbox) advance(ev *agboxv1.SandboxEvent) (newRun bool) {
	sb.LastSequence = ev.GetSequence()
	if newRun = beginsRun(ev, sb.State); newRun {
		sb.State, sb.StateChangedAt = ev.GetSandboxState(), runSince(ev)
		sb.ErrorCode, sb.ErrorMessage, sb.Preparing = "", "", false
	}
	if isFailure(sb, ev) {
		sb.ErrorCode, sb.ErrorMessage = failureOf(ev)
	}
	sb.Preparing = sb.Preparing || isPreparing(sb, ev)
	switch {
	case sb.State != agboxv1.SandboxState_SANDBOX_STATE_READY || sb.execsOfNoAgent():
		sb.idleFrom = noTime
	case newRun || endsActivity(ev):
		sb.idleFrom, sb.history.activity = idleSince(ev), ev.GetSequence()
	}
	return newRun
}
