package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/agbox/agbox/config"
)

// reloader reloads the configuration file while agboxd runs. Only one goroutine may use it.
type reloader struct {
	load func() (config.Config, error)
	// apply passes the reloadable values to their users. It must not block.
	apply func(config.Config)
	// done is called with the result of each reload.
	done func(error)
	log  *slog.Logger
	// now is the configuration in use.
	now config.Config
}

// run reloads on each signal until ctx ends.
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

// reload reads the file again. An invalid file changes nothing.
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
