package store

import (
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// facts is the state derived from the buckets: live sandboxes and agents, held names, active execs, and what callers have. As a change to other
// facts, nil and zero mean removed. Its sandboxes and agents are immutable: a change replaces them.
type facts struct {
	sandboxes map[string]*Sandbox
	names     map[string]string     // name -> sandbox ID
	execs     map[string]activeExec // by exec ID
	usage     map[string]usage      // by caller

	agents     map[string]*Agent
	agentNames map[string]string // name -> agent ID
}

func newFacts() facts {
	return facts{
		sandboxes: map[string]*Sandbox{}, names: map[string]string{}, execs: map[string]activeExec{}, usage: map[string]usage{},
		agents: map[string]*Agent{}, agentNames: map[string]string{},
	}
}

// merge applies changes to f. Unless pruned, it keeps their removals as nil and zero, because f may itself be a change.
func (f facts) merge(changes facts, pruned bool) {
	merge(f.sandboxes, changes.sandboxes, pruned)
	merge(f.names, changes.names, pruned)
	merge(f.execs, changes.execs, pruned)
	merge(f.usage, changes.usage, pruned)
	merge(f.agents, changes.agents, pruned)
	merge(f.agentNames, changes.agentNames, pruned)
}

func merge[V comparable](m, changes map[string]V, pruned bool) {
	var removed V
	for k, v := range changes {
		if m[k] = v; pruned && v == removed {
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
	x.merge(changes, true)
}

// sandbox returns a live sandbox; nil: there is none.
func (x *index) sandbox(id string) *Sandbox { return lookup(x, x.sandboxes, id) }

// lookup returns the value of a key in a map of x.
func lookup[V any](x *index, m map[string]V, key string) V {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return m[key]
}

// all returns the values of a map of x, unordered.
func all[V any](x *index, m map[string]V) []V {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Collect(maps.Values(m))
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
