package server

import (
	"context"
	"io"
	"net"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// Paths by which agboxd reaches into sandboxes, as in SandboxHandle.channel and in the metric of streams.
const (
	PathLive    = "live"    // the live channel
	PathFiles   = "files"   // request, journal and log files: no standard input, terminal, file access or port
	PathArchive = "archive" // the engine's archives of a sandbox that does not run
)

// Paths lists the paths of streams. PathFiles counts streams that were refused because there is no live channel.
var Paths = []string{PathLive, PathFiles, PathArchive}

// path returns the path by which a sandbox is reached now; empty if it is not.
func (s *handles) path(sb store.Sandbox) string {
	switch sb.State {
	case agboxv1.SandboxState_SANDBOX_STATE_READY:
		if s.connected(sb.ID) {
			return PathLive
		}
		return PathFiles
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED, agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		return PathArchive
	}
	return ""
}

// countedStreams counts streams by their path.
type countedStreams struct {
	Streams
	channels Channels
	opened   func(path string)
}

func (c countedStreams) count(conn net.Conn, err error) (net.Conn, error) {
	switch {
	case err == nil:
		c.opened(PathLive)
	case errdefs.IsFailedPrecondition(err):
		c.opened(PathFiles)
	}
	return conn, err
}

// Open implements Streams.
func (c countedStreams) Open(ctx context.Context, sandboxID, user string) (net.Conn, error) {
	return c.count(c.Streams.Open(ctx, sandboxID, user))
}

// OpenExec implements Channels.
func (c countedStreams) OpenExec(ctx context.Context, sandboxID, execID string) (net.Conn, error) {
	return c.count(c.channels.OpenExec(ctx, sandboxID, execID))
}

// countedArchives counts archives.
func countedArchives(read Archives, opened func(path string)) Archives {
	return func(ctx context.Context, sandboxID, path string, take func(io.Reader) error) error {
		opened(PathArchive)
		return read(ctx, sandboxID, path, take)
	}
}
