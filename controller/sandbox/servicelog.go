package sandbox

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/servicelog"
)

// stripes are locks for the files of services: one writer at a time replaces a file.
type stripes struct {
	seed  maphash.Seed
	locks [16]sync.Mutex
}

func (s *stripes) of(key string) *sync.Mutex {
	return &s.locks[maphash.String(s.seed, key)%uint64(len(s.locks))]
}

// ServiceLog brings the file with a service's output up to date and returns its path. problem says why the file may be behind, empty: it is
// not. The file need not exist.
func (r *Reconciler) ServiceLog(ctx context.Context, sandboxID, service string) (path, problem string, err error) {
	path = r.o.Files.ServiceLogPath(sandboxID, service)
	worlds, err := r.o.Objects.Worlds(ctx, sandboxID)
	if err != nil {
		return path, "the engine does not answer", nil //nolint:nilerr // what is stored can be read without the engine
	}
	w := worlds[sandboxID]
	if w == nil {
		return path, "", nil
	}
	for _, c := range w.Containers {
		if c.Component != naming.ComponentService || c.Service != service {
			continue
		}
		err := r.keepOutput(ctx, sandboxID, c)
		switch {
		case errdefs.IsNotFound(err): // removed meanwhile, and its output was copied before
		case errdefs.IsUnavailable(err):
			problem = "the engine does not answer"
		case err != nil:
			return path, "", err
		}
	}
	return path, problem, nil
}

// Archive calls read with the file or tree at an absolute path of a sandbox's primary as a tar stream; see dockerx.Engine.ReadTar. Errors:
// ErrNotFound when the path does not exist; ErrFailedPrecondition when the container does not; ErrUnavailable; those of read.
func (r *Reconciler) Archive(ctx context.Context, sandboxID, path string, read func(io.Reader) error) error {
	worlds, err := r.o.Objects.Worlds(ctx, sandboxID)
	if err != nil {
		return err
	}
	if w := worlds[sandboxID]; w != nil {
		for _, c := range w.Containers {
			if c.Component == naming.ComponentPrimary {
				return r.o.Engine.ReadTar(ctx, c.ID, path, read)
			}
		}
	}
	return fmt.Errorf("sandbox %s has no primary container: %w", sandboxID, errdefs.ErrFailedPrecondition)
}

// keepOutput copies the output of a service that the engine keeps to the file of the service. It may be repeated, also after a crash.
func (r *Reconciler) keepOutput(ctx context.Context, sandboxID string, c plan.Container) error {
	records, err := r.o.Engine.ReadLogs(ctx, c.ID, 0)
	if err != nil || len(records) == 0 {
		return err
	}
	kept := make([]servicelog.Record, len(records))
	for i, r := range records {
		kept[i] = servicelog.Record(r)
	}
	lock := r.serviceLogs.of(sandboxID + "/" + c.Service)
	lock.Lock()
	defer lock.Unlock()
	stored, err := r.o.Files.ServiceLog(sandboxID, c.Service, servicelog.Limit)
	if err != nil {
		return err
	}
	data := servicelog.Merge(stored, kept)
	if len(data) == len(stored) && string(data) == string(stored) {
		return nil
	}
	return r.o.Files.ReplaceServiceLog(sandboxID, c.Service, data)
}

// removeWithOutputKept removes a service's container of a failed create. The container is killed first, so that its output is complete. A disk
// without room, and an engine that can't read a log, do not keep the container: the end of its output is in the message of the failure.
func (p *pass) removeWithOutputKept(ctx context.Context, s plan.Step) error {
	if s.Reason != plan.BecauseCreateFailed || s.Service == "" {
		return p.o.Engine.RemoveContainer(ctx, s.ID)
	}
	if err := p.o.Engine.StopContainer(ctx, s.ID, 0); err != nil {
		return err
	}
	err := p.keepOutput(ctx, p.rec.ID, plan.Container{ID: s.ID, Service: s.Service})
	switch {
	case err == nil, errdefs.IsNotFound(err):
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errdefs.IsInternal(err):
		p.log.Warn("the output of a service is not kept", "sandbox_id", p.rec.ID, "service", s.Service, "err", err)
	default:
		return fmt.Errorf("keep the output of service %s: %w", s.Service, err)
	}
	return p.o.Engine.RemoveContainer(ctx, s.ID)
}
