package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/host/mountpolicy"
)

// makeCovers creates the empty directory and the empty file that cover agboxd's own paths in mounts, and returns their parent directory
// without symbolic links, because it is compared with the mounts that a container sees.
func makeCovers(dataDir string) (string, error) {
	dir := filepath.Join(dataDir, "empty")
	if err := os.MkdirAll(filepath.Join(dir, "dir"), 0o755); err != nil {
		return "", fmt.Errorf("make the covers of mounts: %w", err)
	}
	if err := writeFile(filepath.Join(dir, "file"), nil, 0o444); err != nil { // a second start as a user may not open it for writing
		return "", fmt.Errorf("make the covers of mounts: %w", err)
	}
	return filepath.EvalSymlinks(dir)
}

// places holds the paths that mounts must not expose.
type places struct {
	own    []string
	socket string // the engine's socket; empty: not on this host
}

func newPlaces(cfg config.Config, paths config.Paths, configFile string) places {
	p := places{own: []string{paths.DataDir, paths.RunDir, cfg.Artifacts.ExecOutputRoot, cfg.Backup.Dir, filepath.Dir(paths.ConfigFile)}}
	if cfg.TCP.Key != "" {
		p.own = append(p.own, cfg.TCP.Key)
	}
	if file, err := filepath.Abs(configFile); configFile != "" && err == nil {
		p.own = append(p.own, file)
	}
	host := cmp.Or(cfg.Docker.Host, os.Getenv("DOCKER_HOST"), "unix:///var/run/docker.sock")
	if u, err := url.Parse(host); err == nil && u.Scheme == "unix" {
		p.socket = u.Path
	}
	return p
}

// policy returns the mount policy, resolved with the present links and mounts of the host.
func (p places) policy(m config.Mounts, engineData string, log *slog.Logger) mountpolicy.Policy {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		log.Warn("the mounts of this host can't be read: other paths of agboxd's and the engine's directories are not known", "err", err)
	}
	policy := mountpolicy.Policy{
		Own: mountpolicy.Aliases(resolveAll(p.own), string(info)), AllowSystem: m.AllowSystem, Allow: resolveAll(m.Allow),
	}
	if p.socket != "" {
		policy.Engine = mountpolicy.Aliases(resolveAll([]string{p.socket}), string(info))
	}
	if engineData != "" {
		policy.EngineData = mountpolicy.Aliases(resolveAll([]string{engineData}), string(info))
	}
	return policy
}

func resolveAll(paths []string) []string {
	all := make([]string, len(paths))
	for i, path := range paths {
		all[i] = resolve(path)
	}
	return all
}

// resolve resolves the symbolic links of a path, or of its longest existing prefix.
func resolve(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
		if err != nil {
			return filepath.Clean(path)
		}
		return target
	}
	return filepath.Join(resolve(filepath.Dir(path)), filepath.Base(path))
}
