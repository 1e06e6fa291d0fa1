package dockertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/internal/flight"
)

// Fake is a Docker engine in memory. It keeps state, refuses what Docker refuses with the same class of error, and sends
// the same events. Failures of a real engine can be injected: see Fail, Late, Delay, Down, RestartEngine, Replace, and the
// methods named Outside for actions of other clients on agbox's objects.
//
// It works in a testing/synctest bubble: it uses the clock, timers, channels and mutexes, and no I/O. All of its methods
// may be called from any goroutine, hooks included. Values go in and out as copies.
//
// A container runs until it is ended. OnStart, OnStop, OnPause and StopBehavior let a test play its PID 1.
type Fake struct {
	// StopBehavior returns how long a container takes to exit after a stop's signal. Nil, or a duration of 0: it exits at
	// once, with exit code 143. Longer than the grace period: it is killed then, with 137. Called without locks; it may
	// also end the container itself with ExitContainer. Set it before use.
	StopBehavior func(id string) time.Duration
	// HealthBehavior returns the verdict of a container's healthcheck, and its delay after the start. Nil: HealthHealthy, at
	// once. HealthStarting: no verdict ever. Called without locks. Set it before use.
	HealthBehavior func(spec dockerx.ContainerSpec) (dockerx.Health, time.Duration)
	// CommitDelay is how long a commit takes. Set it before use.
	CommitDelay time.Duration
	// BuildDelay is how long each RUN step of a build takes. Set it before use.
	BuildDelay time.Duration
	// PullDelay is how long a pull takes. Set it before use.
	PullDelay time.Duration
	// PullSteps is the progress that a pull reports, spread evenly over PullDelay, the last one at its end. Set it before
	// use.
	PullSteps []dockerx.PullProgress
	// ListLag is how long lists report an exited container as running. Docker sends the event before its lists are updated;
	// an inspect waits for the true state. Set it before use.
	ListLag time.Duration
	// Now is the host's wall clock, for the containers' start and exit times; nil: time.Now. Set it before use.
	Now func() time.Time
	// RefuseDoubledNames makes a network's create fail with ErrAlreadyExists when the name is in use, as Docker does
	// without concurrency. Otherwise two networks can get one name, as with concurrent creates in Docker. Set it before use.
	RefuseDoubledNames bool

	inFlight sync.WaitGroup
	pulls    *flight.Group[dockerx.Image, dockerx.PullProgress]

	mu         sync.Mutex
	closed     bool
	down       bool
	startedAt  time.Time // of the engine's process
	link       *link
	live       bool
	driver     string          // storage; containers of another driver are not visible
	emptied    map[string]bool // list operations that return nothing
	lastID     int
	containers map[string]*fakeContainer
	networks   map[string]*dockerx.Network
	volumes    map[string]fakeVolume
	images     map[string]dockerx.Image // local, by reference
	made       map[string]madeImage     // of the local ones, by ID, those that a commit or rewrite made
	registry   map[string]dockerx.Image // available for pulls
	refusals   map[string]error         // of pulls, by reference
	missing    map[string]bool          // host paths that do not exist
	taken      map[hostPort]bool        // by processes outside of the engine
	editInfo   func(*dockerx.Info)

	pending []dockerx.Event // emitted since the last hooks ran

	faults map[string][]fault
	delays map[string]time.Duration
	calls  map[string]int

	onStart, onStop, onPause func(dockerx.ContainerDetail)
	hooks                    []func() // to be run in order, without mu
	hooking                  bool
}

// NewFake returns an engine that is up, empty, and runs with live-restore.
func NewFake() *Fake {
	f := &Fake{
		pulls:     flight.NewGroup[dockerx.Image, dockerx.PullProgress](),
		startedAt: time.Now().UTC(),
		link:      newLink(1, nil),
		live:      true,
		driver:    "overlay2",
		emptied:   map[string]bool{},
		registry:  map[string]dockerx.Image{},
		refusals:  map[string]error{},
		missing:   map[string]bool{},
		taken:     map[hostPort]bool{},
		faults:    map[string][]fault{},
		delays:    map[string]time.Duration{},
		calls:     map[string]int{},
	}
	f.empty()
	return f
}

// empty drops the engine's stored state. Called with mu held, or before use.
func (f *Fake) empty() {
	f.containers = map[string]*fakeContainer{}
	f.networks = map[string]*dockerx.Network{}
	f.volumes = map[string]fakeVolume{}
	f.images = map[string]dockerx.Image{}
	f.made = map[string]madeImage{}
	f.link.log, f.pending = nil, nil
}

// Close cancels pulls and streams, drops late operations, and waits for those in progress.
func (f *Fake) Close() error {
	f.do(func() {
		f.closed = true
		f.cutConnections()
	})
	f.pulls.Close()
	f.inFlight.Wait()
	return nil
}

// do runs body with mu held, then the hooks that it queued.
func (f *Fake) do(body func()) {
	_ = f.locked(func() error {
		body()
		return nil
	})
}

// doTo is do with a container, by ID or name, if the engine has it.
func (f *Fake) doTo(id string, body func(*fakeContainer)) {
	f.do(func() {
		if c, err := f.find(id); err == nil {
			body(c)
		}
	})
}

// locked is do for a body that can be refused.
func (f *Fake) locked(body func() error) error {
	f.mu.Lock()
	err := body()
	f.mu.Unlock()
	f.runHooks()
	return err
}

// runHooks runs the queued hooks one after the other. When another goroutine is running hooks, or a hook calls the Fake,
// that goroutine runs these, too.
func (f *Fake) runHooks() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hooking {
		return
	}
	f.hooking = true
	for len(f.hooks) > 0 {
		hook := f.hooks[0]
		f.hooks = f.hooks[1:]
		f.mu.Unlock()
		hook()
		f.mu.Lock()
	}
	f.hooking = false
	f.deliver()
}

// newID returns an ID in Docker's format: 64 hex digits. Called with mu held.
func (f *Fake) newID() string {
	f.lastID++
	sum := sha256.Sum256(fmt.Appendf(nil, "%d", f.lastID))
	return hex.EncodeToString(sum[:])
}

// Info implements Subject. The EngineID is the same for every Fake, as two real engines may share theirs.
func (f *Fake) Info(ctx context.Context) (dockerx.Info, error) {
	return ask(ctx, f, dockerx.OpInfo, func() (dockerx.Info, error) { return f.info(), nil })
}
