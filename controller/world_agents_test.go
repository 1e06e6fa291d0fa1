package controller_test

import (
	"context"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// The ports of a daemon that may be killed, for agents.

func (s *fusedStore) EndExec(ctx context.Context, execID string, end *storev1.ExecEnd) error {
	return s.f.guard(func() error {
		s.watch.endsExec(execID, end)
		return s.Store.EndExec(ctx, execID, end)
	})
}

func (s *fusedStore) RequestCancel(ctx context.Context, execID string) (bool, error) {
	return guarded(s.f, func() (bool, error) { return s.Store.RequestCancel(ctx, execID) })
}

func (s *fusedStore) RequestInterrupt(ctx context.Context, id string) (bool, error) {
	return guarded(s.f, func() (bool, error) { return s.Store.RequestInterrupt(ctx, id) })
}

func (s *fusedStore) TransitionAgent(ctx context.Context, id string, t store.Transition) (store.Agent, error) {
	return guarded(s.f, func() (store.Agent, error) { return s.Store.TransitionAgent(ctx, id, t) })
}

func (s *fusedStore) ClaimPrompt(ctx context.Context, id string, version uint64, c store.Claim) (a store.Agent, p *storev1.AgentPrompt, err error) {
	err = s.f.guard(func() error { a, p, err = s.Store.ClaimPrompt(ctx, id, version, c); return err })
	return a, p, err
}

func (s *fusedStore) Ingest(ctx context.Context, id string, n uint64, from, to *storev1.AgentPosition, out []store.AgentOutput) error {
	return s.f.guard(func() error {
		return s.watch.ingests(id, from, func() error { return s.Store.Ingest(ctx, id, n, from, to, out) })
	})
}

func (s *fusedStore) RemoveAgent(ctx context.Context, id string) error {
	return s.f.guard(func() error { return s.Store.RemoveAgent(ctx, id) })
}

func (s *fusedStore) MoveAgent(ctx context.Context, id string, version uint64) error {
	return s.f.guard(func() error { return s.Store.MoveAgent(ctx, id, version) })
}

func (s *fusedStore) AdoptAgent(ctx context.Context, id string, incarnation uint64) error {
	return s.f.guard(func() error { return s.Store.AdoptAgent(ctx, id, incarnation) })
}

func (s *fusedStore) StartDrain(ctx context.Context, o store.DrainOptions) (*storev1.DrainRecord, error) {
	return guarded(s.f, func() (*storev1.DrainRecord, error) { return s.Store.StartDrain(ctx, o) })
}

func (s *fusedStore) SetDrainPhase(ctx context.Context, of *storev1.DrainRecord, phase agboxv1.DrainPhase) (bool, error) {
	return guarded(s.f, func() (bool, error) { return s.Store.SetDrainPhase(ctx, of, phase) })
}

func (s *fusedStore) WithdrawDrain(ctx context.Context) (bool, error) {
	return guarded(s.f, func() (bool, error) { return s.Store.WithdrawDrain(ctx) })
}

func (d *fusedExecs) AppendInbox(sandboxID, execID string, offset int64, data []byte) (int64, error) {
	return guarded(d.f, func() (int64, error) {
		defer d.shim.fed(sandboxID, execID)
		return d.Dir.AppendInbox(sandboxID, execID, offset, data)
	})
}
