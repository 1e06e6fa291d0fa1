package config

import (
	"context"
	"log/slog"
	"os"
)

// Reloader reloads the configuration file while agboxd runs. Only one goroutine may use it.
type Reloader struct {
	Load func() (Config, error)
	// Apply passes the reloadable values to their users. It must not block.
	Apply func(Config)
	// Done is called with the result of each reload.
	Done func(error)
	Log  *slog.Logger
	// Now is the configuration in use.
	Now Config
}

// Run reloads on each signal until ctx ends.
func (r *Reloader) Run(ctx context.Context, signals <-chan os.Signal) {
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
func (r *Reloader) reload() {
	next, err := r.Load()
	r.Done(err)
	if err != nil {
		r.Log.Error("configuration is not reloaded; the old values hold", "err", err)
		return
	}
	merged, changed, restart := r.Now.Reload(next)
	r.Now = merged
	r.Apply(merged)
	r.Log.Info("configuration is reloaded", "changed", changed)
	if len(restart) > 0 {
		r.Log.Warn("these keys changed in the configuration file and need a restart of agboxd", "keys", restart)
	}
}
