package main

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/host/diskspace"
)

// The watched disks, as metric labels.
const (
	diskData   = "data"
	diskLogs   = "logs"
	diskEngine = "docker"
)

func diskNames() []string { return []string{diskData, diskLogs, diskEngine} }

// watchDisks creates the disk watcher and observes the disks once, before agboxd writes to them: the ballast exists before the database is
// opened.
func (d *daemon) watchDisks(paths config.Paths) {
	d.disk = diskspace.New(diskspace.Options{
		Places: []diskspace.Place{
			{Name: diskData, Words: "of the data directory", Path: paths.DataDir},
			{Name: diskLogs, Words: "of artifacts.exec_output_root", Path: d.cfg.Artifacts.ExecOutputRoot},
			{Name: diskEngine, Words: "of the Docker engine", Where: d.engineRoot},
		},
		Ballast: filepath.Join(paths.DataDir, "ballast"), Reserve: int64(d.cfg.Disk.Reserve), LowWater: int64(d.cfg.Disk.LowWater),
		Observe: d.metrics.Disk, Released: d.metrics.BallastReleased, Logger: d.log,
	})
}

// engineRoot returns the directory where a local engine keeps its containers; empty while it is unknown.
func (d *daemon) engineRoot() string {
	host := cmp.Or(d.cfg.Docker.Host, os.Getenv("DOCKER_HOST"))
	if d.ctl == nil || host != "" && !strings.HasPrefix(host, "unix://") {
		return ""
	}
	_, info := d.ctl.EngineRun()
	return info.DataRoot
}
