package store

import (
	"maps"
	"slices"
)

// Adopts reports whether an older daemon created a live sandbox: that one, or any if sandboxID is empty. From memory.
func (s *Store) Adopts(sandboxID string) bool {
	if sandboxID != "" {
		return s.index.sandbox(sandboxID).isAdopted()
	}
	return slices.ContainsFunc(all(&s.index, s.index.sandboxes), (*Sandbox).isAdopted)
}

func (sb *Sandbox) isAdopted() bool { return sb != nil && sb.Desired.GetAdopted() != nil }

// AdoptedObjects returns the engine's IDs of the objects of a live sandbox that an older daemon created, as far as they are recorded. For
// any other sandbox there are none. From memory.
func (s *Store) AdoptedObjects(sandboxID string) []string {
	sb := s.index.sandbox(sandboxID)
	if !sb.isAdopted() || sb.Desired.GetObjects() == nil {
		return nil
	}
	o := sb.Desired.GetObjects()
	return slices.AppendSeq([]string{o.GetPrimaryId(), o.GetNetworkId()}, maps.Values(o.GetServiceIds()))
}
