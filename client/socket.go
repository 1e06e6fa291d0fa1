package client

import (
	"os"
	"path/filepath"
	"strings"
)

// EnvHost names the environment variable that overrides DefaultSocket.
const EnvHost = "AGBOX_HOST"

// DefaultSocket returns where agboxd listens: $AGBOX_HOST if set; else below $XDG_RUNTIME_DIR; without that,
// /run/agbox for root and the data directory's "run" for others. The same rules as the daemon's.
func DefaultSocket() string {
	if host := os.Getenv(EnvHost); host != "" {
		return SocketPath(host)
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "agbox", "agboxd.sock")
	}
	if os.Geteuid() == 0 {
		return "/run/agbox/agboxd.sock"
	}
	return filepath.Join(dataDir(), "run", "agboxd.sock")
}

// SocketPath returns the path in host, which is a path or "unix://" and a path.
func SocketPath(host string) string { return strings.TrimPrefix(host, "unix://") }

func dataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "agents-sandbox")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/" // no daemon of this user can have started either; the path shows in the error
	}
	return filepath.Join(home, ".local", "share", "agents-sandbox")
}
