// Package conformance drives a daemon by RPC alone and holds it to the contract: every call, every error, every event,
// the order of events, and the waits of clients that exist. It runs on the fake engine and on a real one.
package conformance

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// Target is what is tried.
type Target struct {
	// Start starts a daemon with its own data. It is removed, with all that it made, when t ends.
	Start func(t testing.TB, s Settings) Daemon
	// Image has sh and the usual small programs.
	Image string
	// NoChannel: the runtime of its containers does not let them reach the daemon's socket, so there are no live channels.
	NoChannel bool
	// NoCgroups: its engine neither limits nor freezes containers. Both are refused.
	NoCgroups bool
	// User is the ID of the daemon's user and group; 0: those of this process.
	User int
	// MissingImage is a reference of an image that the engine does not have.
	MissingImage string
}

// Settings are the keys of a daemon's configuration that the suite needs. Zero values are the defaults, but for those of
// paused sandboxes, and for the grace periods of a stop and of a cancel, which are 2 s.
type Settings struct {
	// EventRetention is looked at every second when it is set.
	EventRetention    time.Duration
	EventHistoryLimit int
	LogLimitBytes     int64
	// CleanupTTL is looked at every second when it is set.
	CleanupTTL time.Duration
	// What becomes of paused sandboxes; 0: nothing.
	FreezeDuration, StoppedGCAfter time.Duration
	MaxFrozen                      int
}

// Daemon is one that runs. Its methods are used by one goroutine at a time.
type Daemon interface {
	// Dial connects. The caller closes.
	Dial() (*grpc.ClientConn, error)
	// Restart kills the daemon without a warning and starts another one on the same data.
	Restart(t testing.TB)
	// Stop ends the daemon in order; only Restart may follow.
	Stop(t testing.TB)
	// Break does damage to a sandbox that runs, behind the daemon's back.
	Break(t testing.TB, sandboxID string, d Damage)
}

// Damage is what others do to a sandbox.
type Damage string

// What Break can be asked for.
const (
	KillPrimary   Damage = "kill the primary"
	RemovePrimary Damage = "remove the primary"
	RemoveNetwork Damage = "remove the network"
	// StarvePrimary is for a sandbox whose main process waits for a file, see glutton.
	StarvePrimary Damage = "have the primary want more memory than it may"
)

// Run tries everything. Each subtest uses sandboxes of its own, several daemons run side by side.
func Run(t *testing.T, target Target) {
	d := target.Start(t, Settings{})
	older := []group{
		{"reads", reads},
		{"ids", ids},
		{"errors", refusals},
		{"events", events},
		{"subscriptions", subscriptions},
		{"execs", execs},
		{"bulk delete", bulkDelete},
		{"services", services},
	}
	ours := []group{
		{"updates", updates},
		{"main processes", mainProcesses},
		{"pauses", pauses},
		{"timeouts", timeouts},
		{"volumes", volumes}, {"snapshots", snapshots}, {"templates", templates}, {"starts", starts},
		{"stats", stats},
		{"streams", streams},
		{"agents", agents},
		{"an old client", oldClient},
		{"history", history},
		{"aging", aging},
	}
	runAll(t, slices.Concat(older, ours), target, d, false)
	t.Run("as an old client", func(t *testing.T) {
		t.Parallel()
		runAll(t, older, target, d, true)
	})
}

// group is a part of the suite. All its tests run side by side.
type group struct {
	name string
	run  func(*testing.T, *client)
}

func runAll(t *testing.T, groups []group, target Target, d Daemon, asOld bool) {
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			g.run(t, connect(t, target, d, asOld))
		})
	}
}
