package main

import (
	"cmp"
	"net/url"
	"os"
	"path/filepath"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/host/mountpolicy"
)

// newPlaces returns the paths that mounts must not expose.
func newPlaces(cfg config.Config, paths config.Paths, configFile string) mountpolicy.Places {
	p := mountpolicy.Places{Own: []string{paths.DataDir, paths.RunDir, cfg.Artifacts.ExecOutputRoot, cfg.Backup.Dir, filepath.Dir(paths.ConfigFile)}}
	if cfg.TCP.Key != "" {
		p.Own = append(p.Own, cfg.TCP.Key)
	}
	if cfg.E2B.Key != "" {
		p.Own = append(p.Own, cfg.E2B.Key)
	}
	if file, err := filepath.Abs(configFile); configFile != "" && err == nil {
		p.Own = append(p.Own, file)
	}
	host := cmp.Or(cfg.Docker.Host, os.Getenv("DOCKER_HOST"), "unix:///var/run/docker.sock")
	if u, err := url.Parse(host); err == nil && u.Scheme == "unix" {
		p.Socket = u.Path
	}
	return p
}
