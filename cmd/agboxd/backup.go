package main

import (
	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/execjournal"
)

// newMaker wires what makes backups. A journal comes before its logs, so that one which tells of an end has all of them.
func (d *daemon) newMaker(paths config.Paths) *backup.Maker {
	d.logLimit.Store(int64(d.cfg.Artifacts.ExecLogMaxBytes))
	return &backup.Maker{
		Records: d.store, DataDir: paths.DataDir, LogRoot: d.cfg.Artifacts.ExecOutputRoot, LogLimit: d.logLimit.Load,
		MainFiles: []string{execjournal.StdoutName(execjournal.MainID), execjournal.StderrName(execjournal.MainID)},
		ExecFiles: func(id string) []string {
			return []string{execjournal.JournalName(id), execjournal.StdoutName(id), execjournal.StderrName(id)}
		},
	}
}
