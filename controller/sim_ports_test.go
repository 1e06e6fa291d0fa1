package controller_test

import (
	"context"
	"io"
	"slices"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// The ports of a simulated daemon. Every change, and every question to the engine, waits for the scheduler.

// simPort is the access of one life of the daemon to the scheduler.
type simPort struct {
	s       *sched
	life    *simLife
	replies map[string]any
}

func (p simPort) effect(name string, do func() error) error { return p.s.effect(name, p.life, do) }

func simulated[T any](p simPort, name string, do func() (T, error)) (v T, err error) {
	err = p.effect(name, func() error { v, err = do(); return err })
	return v, err
}

// answered simulates a question to the engine, which may repeat its last answer.
func answered[T any](p simPort, name, id string, do func() (T, error), lie func(T, verdict) T) (v T, err error) {
	key := name + id
	err = p.s.question(name, p.life, func(how verdict) error {
		old, known := p.replies[key].(T)
		if v, err = do(); err != nil {
			return err
		}
		p.replies[key] = v
		if how == stale && known && p.replies["stale"] != key { // two equal answers in a row are believed
			v = old
			p.replies["stale"] = key
		} else if p.replies["stale"] == key {
			p.replies["stale"] = ""
		}
		v = lie(v, how)
		return nil
	})
	return v, err
}

// listed is answered for a list, which may also be incomplete, or contain everything twice.
func listed[T any](p simPort, name string, do func() ([]T, error), lied func()) ([]T, error) {
	return answered(p, name, "", do, func(list []T, how verdict) []T {
		if how >= stale {
			lied()
		}
		switch how {
		case cutOff:
			return slices.Clone(list[(len(list)+1)/2:])
		case repeated:
			return slices.Concat(list, list)
		}
		return list
	})
}

func honestly[T any](v T, _ verdict) T { return v }

type simStore struct {
	*store.Store
	simPort
	watch    *witness
	reported func(id string, r store.Report)
}

type simEngine struct {
	*dockertest.Fake
	simPort
	watch   *witness
	created func(dockerx.ContainerSpec)
}

type simExecs struct {
	*execjournal.Dir
	simPort
	shim *fakeShim
}

// named returns the name of a container: its ID means nothing to a reader.
func (e *simEngine) named(id string) string {
	if spec, ok := e.Spec(id); ok {
		return spec.Name
	}
	return id
}

func (s *simStore) ClaimPrompt(ctx context.Context, id string, version uint64, c store.Claim) (a store.Agent, p *storev1.AgentPrompt, err error) {
	err = s.effect("Store.ClaimPrompt "+id, func() error { a, p, err = s.Store.ClaimPrompt(ctx, id, version, c); return err })
	return a, p, err
}

func (e *simEngine) ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error) {
	id := labels[naming.SandboxID]
	honest := func() ([]dockerx.Container, error) { return e.Fake.ListContainers(ctx, labels) }
	return listed(e.simPort, "Engine.ListContainers "+id, honest, func() {
		if id == "" {
			e.watch.listLied()
		}
	})
}

func (e *simEngine) ListNetworks(ctx context.Context, labels map[string]string) ([]dockerx.Network, error) {
	honest := func() ([]dockerx.Network, error) { return e.Fake.ListNetworks(ctx, labels) }
	return listed(e.simPort, "Engine.ListNetworks "+labels[naming.SandboxID], honest, func() {})
}

// Events waits for the scheduler before it subscribes, and before it delivers each event.
func (e *simEngine) Events(ctx context.Context, since time.Time, labels map[string]string, ready func(), handle func(dockerx.Event)) error {
	if v := e.s.await("Engine.Events", e.life, false); v == killed {
		return errKilled
	}
	e.watch.subscribes()
	return e.Fake.Events(ctx, since, labels, ready, func(ev dockerx.Event) {
		if e.s.await("event "+ev.Action+" "+e.named(ev.ID), e.life, false) == run {
			e.watch.event(ev)
			handle(ev)
		}
	})
}

func (s *simStore) Report(ctx context.Context, id string, r store.Report) error {
	return s.effect("Store.Report "+id, func() error {
		err := s.watch.report(id, r, func() error { return s.Store.Report(ctx, id, r) })
		if err == nil {
			s.reported(id, r)
		}
		return err
	})
}

func (s *simStore) RequestIdleStop(ctx context.Context, id string, d time.Duration, m clockjump.Moment) (bool, error) {
	return simulated(s.simPort, "Store.RequestIdleStop "+id, func() (bool, error) {
		return s.watch.deadline("idle_ttl", id, func() (bool, error) { return s.Store.RequestIdleStop(ctx, id, d, m) })
	})
}

func (s *simStore) RequestCleanup(ctx context.Context, id string, d time.Duration, m clockjump.Moment) (bool, error) {
	return simulated(s.simPort, "Store.RequestCleanup "+id, func() (bool, error) {
		return s.watch.deadline("cleanup_ttl", id, func() (bool, error) { return s.Store.RequestCleanup(ctx, id, d, m) })
	})
}

func (s *simStore) RequestStop(ctx context.Context, id string, reason string) (bool, error) {
	return simulated(s.simPort, "Store.RequestStop "+id, func() (bool, error) { return s.Store.RequestStop(ctx, id, reason) })
}

func (s *simStore) RequestExpire(ctx context.Context, id string, m clockjump.Moment) (bool, error) {
	return simulated(s.simPort, "Store.RequestExpire "+id, func() (bool, error) {
		return s.watch.deadline("timeout", id, func() (bool, error) { return s.Store.RequestExpire(ctx, id, m) })
	})
}

func (s *simStore) Demote(ctx context.Context, id string) (bool, error) {
	return simulated(s.simPort, "Store.Demote "+id, func() (bool, error) { return s.Store.Demote(ctx, id) })
}

func (s *simStore) RequestPauseCleanup(ctx context.Context, id string, d time.Duration, m clockjump.Moment) (bool, error) {
	return simulated(s.simPort, "Store.RequestPauseCleanup "+id, func() (bool, error) {
		return s.watch.deadline("stopped_gc_after", id, func() (bool, error) { return s.Store.RequestPauseCleanup(ctx, id, d, m) })
	})
}

func (s *simStore) SetEngineIdentity(ctx context.Context, id *storev1.EngineIdentity) error {
	return s.effect("Store.SetEngineIdentity", func() error { return s.Store.SetEngineIdentity(ctx, id) })
}

func (s *simStore) GiveUp(ctx context.Context, confirmed map[string]*storev1.GivenUp) error {
	return s.effect("Store.GiveUp", func() error { return s.Store.GiveUp(ctx, confirmed) })
}

func (s *simStore) ForgetGivenUp(ctx context.Context, id string) error {
	return s.effect("Store.ForgetGivenUp", func() error { return s.Store.ForgetGivenUp(ctx, id) })
}

func (e *simEngine) InspectNetwork(ctx context.Context, id string) (dockerx.Network, error) {
	honest := func() (dockerx.Network, error) { return e.Fake.InspectNetwork(ctx, id) }
	return answered(e.simPort, "Engine.InspectNetwork", id, honest, honestly)
}

func (e *simEngine) ConnectNetwork(ctx context.Context, networkID, containerID string, aliases []string) error {
	return e.effect("Engine.ConnectNetwork "+e.named(containerID), func() error {
		return e.Fake.ConnectNetwork(ctx, networkID, containerID, aliases)
	})
}

func (s *simStore) PurgeSandbox(ctx context.Context, id string) error {
	return s.effect("Store.PurgeSandbox "+id, func() error { return s.Store.PurgeSandbox(ctx, id) })
}

func (s *simStore) EndExec(ctx context.Context, id string, end *storev1.ExecEnd) error {
	return s.effect("Store.EndExec "+id, func() error {
		s.watch.endsExec(id, end)
		return s.Store.EndExec(ctx, id, end)
	})
}

func (s *simStore) SetMarkerWritten(ctx context.Context) error {
	return s.effect("Store.SetMarkerWritten", func() error { return s.Store.SetMarkerWritten(ctx) })
}

func (s *simStore) TransitionAgent(ctx context.Context, id string, t store.Transition) (store.Agent, error) {
	return simulated(s.simPort, "Store.TransitionAgent "+id, func() (store.Agent, error) { return s.Store.TransitionAgent(ctx, id, t) })
}

func (s *simStore) Ingest(ctx context.Context, id string, n uint64, from *storev1.AgentPosition, to *storev1.AgentPosition, out []store.AgentOutput) error {
	return s.effect("Store.Ingest "+id, func() error {
		return s.watch.ingests(id, from, func() error { return s.Store.Ingest(ctx, id, n, from, to, out) })
	})
}

func (s *simStore) MoveAgent(ctx context.Context, id string, version uint64) error {
	return s.effect("Store.MoveAgent "+id, func() error { return s.Store.MoveAgent(ctx, id, version) })
}

func (s *simStore) AdoptAgent(ctx context.Context, id string, incarnation uint64) error {
	return s.effect("Store.AdoptAgent "+id, func() error { return s.Store.AdoptAgent(ctx, id, incarnation) })
}

func (s *simStore) RemoveAgent(ctx context.Context, id string) error {
	return s.effect("Store.RemoveAgent "+id, func() error { return s.Store.RemoveAgent(ctx, id) })
}

func (s *simStore) RequestCancel(ctx context.Context, id string) (bool, error) {
	return simulated(s.simPort, "Store.RequestCancel "+id, func() (bool, error) { return s.Store.RequestCancel(ctx, id) })
}

func (s *simStore) RequestInterruptToSave(ctx context.Context, id string) (bool, error) {
	return simulated(s.simPort, "Store.RequestInterruptToSave "+id, func() (bool, error) { return s.Store.RequestInterruptToSave(ctx, id) })
}

func (s *simStore) RequestNudge(ctx context.Context, id string) (bool, error) {
	return simulated(s.simPort, "Store.RequestNudge "+id, func() (bool, error) { return s.Store.RequestNudge(ctx, id) })
}

func (s *simStore) StartDrain(ctx context.Context, o store.DrainOptions) (*storev1.DrainRecord, error) {
	return simulated(s.simPort, "Store.StartDrain", func() (*storev1.DrainRecord, error) { return s.Store.StartDrain(ctx, o) })
}

func (s *simStore) SetDrainPhase(ctx context.Context, of *storev1.DrainRecord, phase agboxv1.DrainPhase) (bool, error) {
	return simulated(s.simPort, "Store.SetDrainPhase", func() (bool, error) { return s.Store.SetDrainPhase(ctx, of, phase) })
}

func (s *simStore) WithdrawDrain(ctx context.Context) (bool, error) {
	return simulated(s.simPort, "Store.WithdrawDrain", func() (bool, error) { return s.Store.WithdrawDrain(ctx) })
}

func (e *simEngine) Info(ctx context.Context) (dockerx.Info, error) {
	return simulated(e.simPort, "Engine.Info", func() (dockerx.Info, error) { return e.Fake.Info(ctx) })
}

func (e *simEngine) InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error) {
	honest := func() (dockerx.ContainerDetail, error) { return e.Fake.InspectContainer(ctx, id) }
	return answered(e.simPort, "Engine.InspectContainer "+e.named(id), id, honest, honestly)
}

func (e *simEngine) CreateContainer(ctx context.Context, spec dockerx.ContainerSpec) (string, error) {
	return simulated(e.simPort, "Engine.CreateContainer "+spec.Name, func() (string, error) {
		e.created(spec)
		e.watch.creates(spec.Labels)
		return e.Fake.CreateContainer(ctx, spec)
	})
}

func (e *simEngine) StartContainer(ctx context.Context, id string) error {
	return e.effect("Engine.StartContainer "+e.named(id), func() error {
		e.watch.starts(id)
		return e.Fake.StartContainer(ctx, id)
	})
}

func (e *simEngine) UpdateContainer(ctx context.Context, id string, l dockerx.Limits) error {
	return e.effect("Engine.UpdateContainer "+e.named(id), func() error { return e.Fake.UpdateContainer(ctx, id, l) })
}

func (e *simEngine) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return e.effect("Engine.StopContainer "+e.named(id), func() error {
		e.watch.ends(dockerx.OpStopContainer, id)
		return e.Fake.StopContainer(ctx, id, grace)
	})
}

func (e *simEngine) PauseContainer(ctx context.Context, id string) error {
	return e.effect("Engine.PauseContainer "+e.named(id), func() error { return e.Fake.PauseContainer(ctx, id) })
}

func (e *simEngine) UnpauseContainer(ctx context.Context, id string) error {
	return e.effect("Engine.UnpauseContainer "+e.named(id), func() error { return e.Fake.UnpauseContainer(ctx, id) })
}

func (e *simEngine) RemoveContainer(ctx context.Context, id string) error {
	return e.effect("Engine.RemoveContainer "+e.named(id), func() error {
		e.watch.ends(dockerx.OpRemoveContainer, id)
		return e.Fake.RemoveContainer(ctx, id)
	})
}

func (e *simEngine) CreateNetwork(ctx context.Context, spec dockerx.NetworkSpec) (dockerx.Network, error) {
	return simulated(e.simPort, "Engine.CreateNetwork"+" "+spec.Name, func() (dockerx.Network, error) {
		e.watch.creates(spec.Labels)
		return e.Fake.CreateNetwork(ctx, spec)
	})
}

func (e *simEngine) RemoveNetwork(ctx context.Context, id string) error {
	return e.effect("Engine.RemoveNetwork "+e.named(id), func() error {
		e.watch.removesNetwork(id)
		return e.Fake.RemoveNetwork(ctx, id)
	})
}

func (e *simEngine) InspectImage(ctx context.Context, ref string) (dockerx.Image, error) {
	return simulated(e.simPort, "Engine.InspectImage "+ref, func() (dockerx.Image, error) { return e.Fake.InspectImage(ctx, ref) })
}

func (e *simEngine) EnsureImage(ctx context.Context, ref string, o dockerx.PullOptions) (dockerx.Image, error) {
	return simulated(e.simPort, "Engine.EnsureImage "+ref, func() (dockerx.Image, error) { return e.Fake.EnsureImage(ctx, ref, o) })
}

func (e *simEngine) ListImages(ctx context.Context, labels map[string]string) ([]dockerx.LocalImage, error) {
	return simulated(e.simPort, "Engine.ListImages", func() ([]dockerx.LocalImage, error) { return e.Fake.ListImages(ctx, labels) })
}

func (e *simEngine) CommitContainer(ctx context.Context, id string, labels map[string]string) (string, error) {
	return simulated(e.simPort, "Engine.CommitContainer "+e.named(id), func() (string, error) { return e.Fake.CommitContainer(ctx, id, labels) })
}

func (e *simEngine) RewriteImage(ctx context.Context, layersOf, configOf, ref string, labels map[string]string) (dockerx.Image, error) {
	return simulated(e.simPort, "Engine.RewriteImage "+ref, func() (dockerx.Image, error) {
		return e.Fake.RewriteImage(ctx, layersOf, configOf, ref, labels)
	})
}

func (e *simEngine) RemoveImage(ctx context.Context, id string) error {
	return e.effect("Engine.RemoveImage "+id, func() error { return e.Fake.RemoveImage(ctx, id) })
}

func (e *simEngine) StatPath(ctx context.Context, id string, path string) (dockerx.PathInfo, error) {
	return simulated(e.simPort, "Engine.StatPath "+e.named(id), func() (dockerx.PathInfo, error) { return e.Fake.StatPath(ctx, id, path) })
}

func (e *simEngine) ReadContainerFile(ctx context.Context, id string, path string, limit int64) ([]byte, error) {
	return simulated(e.simPort, "Engine.ReadContainerFile "+e.named(id), func() ([]byte, error) { return e.Fake.ReadContainerFile(ctx, id, path, limit) })
}

func (e *simEngine) ReadTar(ctx context.Context, id, name string, read func(io.Reader) error) error {
	return e.effect("Engine.ReadTar "+e.named(id), func() error { return e.Fake.ReadTar(ctx, id, name, read) })
}

func (e *simEngine) ReadLogs(ctx context.Context, id string, tail int) ([]dockerx.LogRecord, error) {
	return simulated(e.simPort, "Engine.ReadLogs "+e.named(id), func() ([]dockerx.LogRecord, error) { return e.Fake.ReadLogs(ctx, id, tail) })
}

func (e *simEngine) WriteTar(ctx context.Context, id string, dir string, within time.Duration, tar io.Reader) error {
	return e.effect("Engine.WriteTar "+e.named(id), func() error { return e.Fake.WriteTar(ctx, id, dir, within, tar) })
}

func (e *simEngine) VolumeExists(ctx context.Context, name string) (bool, error) {
	return simulated(e.simPort, "Engine.VolumeExists "+name, func() (bool, error) { return e.Fake.VolumeExists(ctx, name) })
}

func (e *simEngine) CreateVolume(ctx context.Context, name string, labels map[string]string) error {
	return e.effect("Engine.CreateVolume "+name, func() error { return e.Fake.CreateVolume(ctx, name, labels) })
}

func (e *simEngine) ListVolumes(ctx context.Context, labels map[string]string) ([]dockerx.Volume, error) {
	return simulated(e.simPort, "Engine.ListVolumes "+labels[naming.SandboxName], func() ([]dockerx.Volume, error) { return e.Fake.ListVolumes(ctx, labels) })
}

func (e *simEngine) ListVolumeUsers(ctx context.Context, name string) ([]dockerx.Container, error) {
	return simulated(e.simPort, "Engine.ListVolumeUsers "+name, func() ([]dockerx.Container, error) { return e.Fake.ListVolumeUsers(ctx, name) })
}

func (e *simEngine) RemoveVolume(ctx context.Context, name string) error {
	return e.effect("Engine.RemoveVolume "+name, func() error { return e.Fake.RemoveVolume(ctx, name) })
}

func (d *simExecs) Prepare(id string) (execjournal.Paths, error) {
	return simulated(d.simPort, "File.Prepare "+id, func() (execjournal.Paths, error) { return d.Dir.Prepare(id) })
}

func (d *simExecs) RemoveInputs(id string) error {
	return d.effect("File.RemoveInputs "+id, func() error { return d.Dir.RemoveInputs(id) })
}

func (d *simExecs) Remove(id string) error {
	return d.effect("File.Remove "+id, func() error { return d.Dir.Remove(id) })
}

func (d *simExecs) Start(id string, r execjournal.Request) error {
	return d.effect("File.Start "+r.ExecID+" of "+id, func() error {
		defer d.shim.written(id)
		return d.Dir.Start(id, r)
	})
}

func (d *simExecs) Cancel(id string, execID string, nonce string) error {
	return d.effect("File.Cancel "+id+"/"+execID, func() error {
		defer d.shim.written(id)
		return d.Dir.Cancel(id, execID, nonce)
	})
}

func (d *simExecs) Close(id string, execID string, nonce string, reason string) (execjournal.Status, error) {
	return simulated(d.simPort, "File.Close "+id+"/"+execID, func() (execjournal.Status, error) { return d.Dir.Close(id, execID, nonce, reason) })
}

func (d *simExecs) Forget(id string, execID string) error {
	return d.effect("File.Forget "+id+"/"+execID, func() error { return d.Dir.Forget(id, execID) })
}

func (d *simExecs) Release(id string) error {
	return d.effect("File.Release "+id, func() error {
		defer d.shim.written(id)
		return d.Dir.Release(id)
	})
}

func (d *simExecs) ReplaceServiceLog(id, service string, data []byte) error {
	return d.effect("File.ReplaceServiceLog "+id, func() error { return d.Dir.ReplaceServiceLog(id, service, data) })
}

func (d *simExecs) Withhold(id string) error {
	return d.effect("File.Withhold "+id, func() error { return d.Dir.Withhold(id) })
}

func (d *simExecs) AppendInbox(id string, execID string, offset int64, data []byte) (int64, error) {
	return simulated(d.simPort, "File.AppendInbox "+id+"/"+execID, func() (int64, error) {
		defer d.shim.fed(id, execID)
		return d.Dir.AppendInbox(id, execID, offset, data)
	})
}

func (d *simExecs) CloseInbox(id string, execID string) error {
	return d.effect("File.CloseInbox "+id+"/"+execID, func() error {
		defer d.shim.fed(id, execID)
		return d.Dir.CloseInbox(id, execID)
	})
}
