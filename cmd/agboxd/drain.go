package main

import (
	"context"

	"github.com/agbox/agbox/config"
)

// mustPark reports whether agents save their work before agboxd exits on SIGTERM or SIGINT.
func (d *daemon) mustPark() bool {
	switch d.current.Load().Drain.OnSigterm {
	case config.OnSigtermDetach:
		return false
	case config.OnSigtermPark:
		return true
	}
	return len(d.ctl.BusyAgents()) > 0
}

// beforeExit parks the agents after the first SIGTERM or SIGINT.
func (d *daemon) beforeExit(ctx context.Context) {
	if d.mustPark() {
		d.ctl.ParkForExit(ctx, d.current.Load().Drain.Wait, d.drained, signals)
	}
}
