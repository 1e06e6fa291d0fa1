package store

import (
	"maps"
	"slices"
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
	maps.Copy(f.sandboxes, changes.sandboxes)
	maps.Copy(f.names, changes.names)
	maps.Copy(f.execs, changes.execs)
	maps.Copy(f.agents, changes.agents)
	maps.Copy(f.agentNames, changes.agentNames)
}

// prune deletes the entries that changes removed.
func (f facts) prune(changes facts) {
	prune(f.sandboxes, changes.sandboxes)
	prune(f.names, changes.names)
	prune(f.execs, changes.execs)
	prune(f.agents, changes.agents)
	prune(f.agentNames, changes.agentNames)
}

func prune[V comparable](m, changes map[string]V) {
	var removed V
	for k, v := range changes {
		if v == removed {
			delete(m, k)
		}
	}
}

// latest returns the value of a key after changes to m; zero if there is none or it was removed.
func latest[V any](changes, m map[string]V, k string) V {
	if v, changed := changes[k]; changed {
		return v
	}
	return m[k]
}

// latestKeys returns the keys that m has after changes, unordered.
func latestKeys[V any](changes, m map[string]*V) []string {
	var keys []string
	for k := range m {
		if _, changed := changes[k]; !changed {
			keys = append(keys, k)
		}
	}
	for k, v := range changes {
		if v != nil {
			keys = append(keys, k)
		}
	}
	return keys
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
	return slices.Collect(maps.Values(x.sandboxes))
}

// allAgents returns the agents, unordered.
func (x *index) allAgents() []*Agent {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Collect(maps.Values(x.agents))
}

// copied returns a deep copy.
func (sb *Sandbox) copied() Sandbox {
	c := *sb
	c.Spec, c.Desired, c.Progress = proto.CloneOf(sb.Spec), proto.CloneOf(sb.Desired), proto.CloneOf(sb.Progress) // nil stays nil
	c.ActiveExecs, c.Agents = slices.Clone(sb.ActiveExecs), slices.Clone(sb.Agents)
	return c
}

// hasLabels reports whether the labels include all wanted pairs.
func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
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
