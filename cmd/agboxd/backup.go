package main

import (
	"context"
	"io"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// newMaker creates the backup maker. It copies a journal before its logs, so that the logs of a journal with an end are complete.
func (d *daemon) newMaker(paths config.Paths) *backup.Maker {
	out, errOut := execjournal.StdoutName(execid.Main), execjournal.StderrName(execid.Main)
	return &backup.Maker{
		Records: d.store, DataDir: paths.DataDir, LogRoot: d.cfg.Artifacts.ExecOutputRoot,
		LogLimit:  func() int64 { return int64(d.current.Load().Artifacts.ExecLogMaxBytes) },
		MainFiles: []string{out, errOut, execjournal.TimesName(out), execjournal.TimesName(errOut)},
		ExecFiles: func(id string) []string {
			return []string{execjournal.JournalName(id), execjournal.StdoutName(id), execjournal.StderrName(id)}
		},
	}
}

// schedule returns the schedule configured by backup.interval.
func (d *daemon) schedule() *backup.Schedule {
	c := d.cfg.Backup
	s := &backup.Schedule{
		Write: func(ctx context.Context, w io.Writer) error { return d.backups.Write(ctx, w, false) },
		Dir:   c.Dir, Instance: d.store.InstanceID(), Interval: c.Interval, Keep: c.Keep,
		Done: d.metrics.BackedUp, Logger: d.log,
	}
	if newest := s.Newest(); c.Interval > 0 && !newest.IsZero() {
		d.metrics.LastBackup(newest)
	}
	return s
}
