// Package unixsocket listens on a unix socket that only its owner, or also a group, can open.
package unixsocket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/agbox/agbox/internal/host/disk"
)

// Keep as the group leaves the group of a socket as it is.
const Keep = -1

// Listen replaces the socket file at path, so the caller must hold the lock of the daemon beside it. With a mode of 0600 only the owner can open
// the socket. With any other mode the group can open it too, by its number or Keep, and may pass through its directory, which it can't list.
func Listen(path string, mode os.FileMode, group int) (net.Listener, error) {
	if err := disk.Remove(path); err != nil {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := protect(path, mode, group); err != nil {
		return nil, errors.Join(fmt.Errorf("protect %s: %w", path, err), l.Close())
	}
	return l, nil
}

func protect(path string, mode os.FileMode, group int) error {
	if err := os.Chmod(path, 0o600); err != nil || mode == 0o600 {
		return err
	}
	dir := filepath.Dir(path)
	return errors.Join(os.Chown(dir, -1, group), os.Chmod(dir, 0o710), os.Chown(path, -1, group), os.Chmod(path, mode))
}
