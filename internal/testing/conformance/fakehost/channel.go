package fakehost

import (
	"context"
	"log/slog"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/channel/hub"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

// Channels returns the hub of a daemon whose containers this host runs, and the daemon's files with it. The caller closes the hub.
func (h *Host) Channels(execs *execjournal.Dir, released []string) (*hub.Hub, hub.Files) {
	log := slog.New(slog.DiscardHandler)
	channels := hub.New(hub.Options{Dir: execs.ExecDir, MainProcess: h.mainProcess, Dropped: func(string) {}, Logger: log})
	files := hub.Files{Dir: execs, Hub: channels, Logger: log}
	files.ServeReleased(released)
	return channels, files
}

func (h *Host) mainProcess(ctx context.Context, sandboxID string) (int, error) {
	d, err := h.engine.InspectContainer(ctx, naming.Primary(sandboxID))
	if err != nil {
		return 0, err
	}
	b := h.box(d.ID)
	if b == nil || b.cmd == nil || b.cmd.Process == nil {
		return 0, errdefs.ErrNotFound
	}
	return b.cmd.Process.Pid, nil
}
