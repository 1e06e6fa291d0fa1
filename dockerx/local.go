package dockerx

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
)

// Foreign returns why the engine's bridges are no interfaces of this process's network namespace, as the rest of a sentence about the engine;
// empty: nothing shows that. Errors: it is unknown, because the engine does not answer.
//
// It asks whether the engine is rootless, and compares the namespaces of this process and of the one that listens on the engine's socket. A process between the two, or one that is
// not visible from here, counts as the engine.
func (e *Engine) Foreign(ctx context.Context) (string, error) {
	if e.host.network != "unix" {
		return "is reached over " + e.host.network, nil
	}
	ctx, cancel := context.WithTimeout(ctx, Deadline(OpInfo))
	defer cancel()
	pid, err := listener(ctx, e.host)
	if err != nil || pid <= 0 {
		return "", err
	}
	theirs, err := os.Readlink(filepath.Join(e.run.proc, strconv.Itoa(pid), "ns/net"))
	if err != nil {
		return "", nil // another user's process, or one that has ended
	}
	ours, err := os.Readlink(filepath.Join(e.run.proc, "self/ns/net"))
	if err != nil {
		return "", fmt.Errorf("read the network namespace of agboxd: %w: %w", errdefs.ErrUnavailable, err)
	}
	if ours != theirs {
		return "runs in another network namespace", nil
	}
	// A rootless engine may serve from this namespace, and have its bridges in another. One that does not answer is not known to be rootless.
	if info, err := e.Info(ctx); err == nil && info.Rootless {
		return "is rootless: its networks are in a network namespace of its own", nil
	}
	return "", nil
}
