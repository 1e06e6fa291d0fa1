package hub

import (
	"log/slog"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// Files are the files of sandboxes, with the sockets of their channels: a channel is served from the release of PID 1 until the files go.
type Files struct {
	*execjournal.Dir
	Hub    *Hub
	Logger *slog.Logger
}

// Release serves the channel and calls Dir.Release. A sandbox whose channel cannot be served is released all the same.
func (f Files) Release(sandboxID string) error {
	f.serve(sandboxID)
	return f.Dir.Release(sandboxID)
}

// ServeReleased serves the channels of the sandboxes that were released before.
func (f Files) ServeReleased(ids []string) {
	for _, id := range ids {
		if released, err := f.Released(id); err == nil && released {
			f.serve(id)
		}
	}
}

func (f Files) serve(sandboxID string) {
	if err := f.Hub.Serve(sandboxID); err != nil {
		f.Logger.Warn("a sandbox has no live channel", "sandbox_id", sandboxID, "err", err)
	}
}

// Remove ends the channel and calls Dir.Remove.
func (f Files) Remove(sandboxID string) error {
	f.Hub.Forget(sandboxID)
	return f.Dir.Remove(sandboxID)
}

// RemoveInputs ends the channel and calls Dir.RemoveInputs.
func (f Files) RemoveInputs(sandboxID string) error {
	f.Hub.Forget(sandboxID)
	return f.Dir.RemoveInputs(sandboxID)
}
