package store

import (
	"fmt"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// load checks the schema version of the file and loads the facts from it. The writer does not run yet.
func (s *Store) load() error {
	txid, _, err := s.newest()
	if err != nil {
		return fmt.Errorf("read %s: %w", s.o.Path, err)
	}
	s.setDurable(txid, nil)
	s.index.facts = newFacts()
	return s.db.View(func(tx *bolt.Tx) error {
		if err := s.loadSchema(tx); err != nil {
			return err
		}
		if err := s.loadInstances(tx); err != nil {
			return err
		}
		s.rebuilding.Store(get(tx, bucketMeta, []byte(keyRebuild)) != nil)
		s.loadDrain(tx)
		s.loadSandboxes(tx, s.loadAgents(tx))
		s.loadNames(tx)
		s.index.loadUsage()
		return nil
	})
}

// loadInstances loads the UUIDs of this and of former instances. Like the schema version, they are required to open the store: without
// them the daemon cannot recognize its Docker objects.
func (s *Store) loadInstances(tx *bolt.Tx) error {
	instance, err := read[*storev1.Instance](tx, bucketMeta, keyInstance)
	if err == nil && instance.GetUuid() == "" {
		err = errdefs.ErrDataLoss
	}
	if err != nil {
		return fmt.Errorf("read instance of %s: %w: %w", s.o.Path, err, errdefs.ErrDataLoss)
	}
	all := instancesOf(instance)
	s.instances.Store(&all)
	return nil
}

// loadSandboxes loads the live sandboxes that are not hidden. agents holds the agent IDs of each sandbox.
func (s *Store) loadSandboxes(tx *bolt.Tx, agents map[string][]string) {
	l := loader{tx, s.corrupt.add}
	for _, id := range liveIn(tx) {
		if get(tx, bucketUnproven, []byte(id)) != nil {
			continue
		}
		execs := l.activeExecs(id)
		for _, execID := range execs {
			e, _ := l.exec(id, execID) // notes now what does not decode
			s.index.execs[execID] = activeExec{sandboxID: id, caller: e.Desired.GetCaller()}
		}
		sb := l.sandbox(id, execs, agents[id])
		sb.IdleSince = sb.idle(func(agentID string) *Agent { return s.index.agents[agentID] })
		l.history(sb)
		s.index.sandboxes[id] = sb
	}
}

// loadNames loads the names from their bucket and from the desired states, so that a damaged record of either releases no held name.
func (s *Store) loadNames(tx *bolt.Tx) {
	for id, sb := range s.index.sandboxes {
		if sb.Name != "" && sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_DELETE {
			s.index.names[sb.Name] = id
		}
	}
	for k, v := range records(tx, bucketNames, nil) {
		name := string(k)
		var ref storev1.NameRef
		if err := decode(v, &ref); err != nil {
			s.corrupt.add(Corrupt{Bucket: bucketNames, Key: name, SandboxID: s.index.names[name], Err: err})
			continue
		}
		if sb := s.index.sandboxes[ref.GetSandboxId()]; sb != nil {
			s.index.names[name] = sb.ID
			if sb.Desired == nil {
				sb.Name = name
			}
		}
	}
}
