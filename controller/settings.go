package controller

import "github.com/agbox/agbox/controller/sandbox"

// Settings is the part of the configuration that may change while the controller runs.
type Settings = sandbox.Settings

// SetSettings replaces the settings: the next pass over each sandbox uses them, and a resync is requested.
func (c *Controller) SetSettings(s Settings) {
	c.settings.Store(&s)
	c.askResync()
}

// inForce returns the settings of the next pass.
func (c *Controller) inForce() Settings { return *c.settings.Load() }
