package controller

import "github.com/agbox/agbox/controller/sandbox"

// Settings are the parts of the configuration that may change while the controller runs.
type Settings = sandbox.Settings

// SetSettings takes effect with the next pass over each sandbox, and asks for a resync.
func (c *Controller) SetSettings(s Settings) {
	c.settings.Store(&s)
	c.askResync()
}

// inForce returns the settings of the next pass.
func (c *Controller) inForce() Settings { return *c.settings.Load() }
