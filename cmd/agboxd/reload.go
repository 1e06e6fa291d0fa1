package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/agbox/agbox/config"
)

// reloader takes over a changed configuration file while the daemon runs. It is used by one goroutine.
type reloader struct {
	load func() (config.Config, error)
	// apply hands the values that a running daemon can take over to those who use them. It must not block.
	apply func(config.Config)
	// done is told how each reload ended.
	done func(error)
	log  *slog.Logger
	// now is what the daemon runs with.
	now config.Config
}

// run reloads at each signal until ctx ends.
func (r *reloader) run(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			r.reload()
		}
	}
}

// reload reads the file again. One that is wrong changes nothing at all.
func (r *reloader) reload() {
	next, err := r.load()
	r.done(err)
	if err != nil {
		r.log.Error("configuration is not reloaded; the old values hold", "err", err)
		return
	}
	merged, changed, restart := r.now.Reload(next)
	r.now = merged
	r.apply(merged)
	r.log.Info("configuration is reloaded", "changed", changed)
	if len(restart) > 0 {
		r.log.Warn("these keys changed in the configuration file and need a restart of agboxd", "keys", restart)
	}
}
