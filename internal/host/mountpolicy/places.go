package mountpolicy

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/agbox/agbox/internal/host/disk"
)

// MakeCovers creates the empty directory and the empty file that cover agboxd's own paths in mounts, and returns their parent directory
// without symbolic links, because it is compared with the mounts that a container sees.
func MakeCovers(dataDir string) (string, error) {
	dir := filepath.Join(dataDir, "empty")
	if err := os.MkdirAll(filepath.Join(dir, "dir"), 0o755); err != nil {
		return "", fmt.Errorf("make the covers of mounts: %w", err)
	}
	if err := disk.Replace(filepath.Join(dir, "file"), nil, 0o444); err != nil { // a second start as a user may not open it for writing
		return "", fmt.Errorf("make the covers of mounts: %w", err)
	}
	return filepath.EvalSymlinks(dir)
}

// Places holds the paths that mounts must not expose.
type Places struct {
	Own    []string // agboxd's
	Socket string   // the engine's; empty: not on this host
}

// Policy returns the mount policy, resolved with the present links and mounts of the host.
func (p Places) Policy(allowSystem bool, allow []string, engineData string, log *slog.Logger) Policy {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		log.Warn("the mounts of this host can't be read: other paths of agboxd's and the engine's directories are not known", "err", err)
	}
	policy := Policy{
		Own: Aliases(resolveAll(p.Own), string(info)), AllowSystem: allowSystem, Allow: resolveAll(allow),
	}
	if p.Socket != "" {
		policy.Engine = Aliases(resolveAll([]string{p.Socket}), string(info))
	}
	if engineData != "" {
		policy.EngineData = Aliases(resolveAll([]string{engineData}), string(info))
	}
	return policy
}

func resolveAll(paths []string) []string {
	all := make([]string, len(paths))
	for i, path := range paths {
		all[i] = Resolve(path)
	}
	return all
}

// Resolve resolves the symbolic links of a path, or of its longest existing prefix.
func Resolve(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
		if err != nil {
			return filepath.Clean(path)
		}
		return target
	}
	return filepath.Join(Resolve(filepath.Dir(path)), filepath.Base(path))
}
