package dockertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/internal/flight"
)

// Fake is a Docker engine in memory. It keeps state, refuses what Docker refuses with the same class of error, and tells
// the same events. What goes wrong with a real engine can be ordered: see Fail, Late, Delay, Down, RestartEngine, Replace,
// and the methods named Outside for what others do to our objects.
//
// It works in a testing/synctest bubble: it uses the clock, timers, channels and mutexes, and no I/O. All of its methods
// may be called from any goroutine, hooks included. Values go in and out as copies.
//
// A container "runs" until something ends it. OnStart, OnStop, OnPause and StopBehavior let a test play its PID 1.
type Fake struct {
	// StopBehavior says how long a container takes to end after the signal of a stop. Nil, or a duration of 0: it ends at
	// once, with exit code 143. Longer than the grace period: it is killed then, with 137. Called without locks; it may
	// also have the container end by itself with ExitContainer. Set it before use.
	StopBehavior func(id string) time.Duration
	// HealthBehavior says what the healthcheck of a container finds, and how long after its start. Nil: HealthHealthy, at
	// once. HealthStarting: never anything. Called without locks. Set it before use.
	HealthBehavior func(spec dockerx.ContainerSpec) (dockerx.Health, time.Duration)
	// PullDelay is how long a pull takes. Set it before use.
	PullDelay time.Duration
	// PullSteps is what a pull tells of its progress, spread evenly over PullDelay, the last one at its end. Set it before
	// use.
	PullSteps []dockerx.PullProgress
	// ListLag is for how long lists still show a container that ended as running. Docker tells of the end before its lists
	// know of it; an inspect waits for the truth. Set it before use.
	ListLag time.Duration
	// Now is the wall clock of the host, by which containers begin and end; nil: time.Now. Set it before use.
	Now func() time.Time
	// RefuseDoubledNames has a network's create refused with ErrAlreadyExists when the name is taken, as Docker does
	// when nothing goes on at the same time. Without it names double, as they do in Docker when it does. Set it before use.
	RefuseDoubledNames bool

	inFlight sync.WaitGroup
	pulls    *flight.Group[dockerx.Image, dockerx.PullProgress]

	mu         sync.Mutex
	closed     bool
	down       bool
	life       int           // of the engine's process
	begun      time.Time     // that life
	lost       chan struct{} // closed when the calls under way lose their connections
	live       bool
	driver     string          // storage; containers of another one are not seen
	emptied    map[string]bool // lists that are answered empty, by operation
	lastID     int
	containers map[string]*fakeContainer
	networks   map[string]*dockerx.Network
	volumes    map[string]map[string]string
	images     map[string]dockerx.Image // local, by reference
	registry   map[string]dockerx.Image // to be pulled
	refusals   map[string]error         // of pulls, by reference
	missing    map[string]bool          // host paths that do not exist
	taken      map[hostPort]bool        // by others
	imageFiles map[string]tree          // by image ID
	editInfo   func(*dockerx.Info)

	history []dockerx.Event
	untold  []dockerx.Event // since the last hooks ran
	streams map[*stream]bool

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
		pulls:      flight.NewGroup[dockerx.Image, dockerx.PullProgress](),
		life:       1,
		begun:      time.Now().UTC(),
		lost:       make(chan struct{}),
		live:       true,
		driver:     "overlay2",
		emptied:    map[string]bool{},
		registry:   map[string]dockerx.Image{},
		refusals:   map[string]error{},
		missing:    map[string]bool{},
		taken:      map[hostPort]bool{},
		imageFiles: map[string]tree{},
		streams:    map[*stream]bool{},
		faults:     map[string][]fault{},
		delays:     map[string]time.Duration{},
		calls:      map[string]int{},
	}
	f.empty()
	return f
}

// empty drops everything that an engine's data directory holds. Called with mu held, or before use.
func (f *Fake) empty() {
	f.containers = map[string]*fakeContainer{}
	f.networks = map[string]*dockerx.Network{}
	f.volumes = map[string]map[string]string{}
	f.images = map[string]dockerx.Image{}
	f.history, f.untold = nil, nil
}

// Close ends pulls and streams, drops late operations, and waits for those under way.
func (f *Fake) Close() error {
	_ = f.locked(func() error {
		f.closed = true
		f.cutConnections()
		return nil
	})
	f.pulls.Close()
	f.inFlight.Wait()
	return nil
}

// locked runs body with mu held, then the hooks that it ordered.
func (f *Fake) locked(body func() error) error {
	f.mu.Lock()
	err := body()
	f.mu.Unlock()
	f.runHooks()
	return err
}

// runHooks runs the ordered hooks one after the other. When another goroutine is at it, or a hook calls the Fake, that
// one goes on with ours.
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
	f.spread()
}

// newID returns one that looks like Docker's: 64 hex digits. Called with mu held.
func (f *Fake) newID() string {
	f.lastID++
	sum := sha256.Sum256(fmt.Appendf(nil, "%d", f.lastID))
	return hex.EncodeToString(sum[:])
}

// Info implements Engine. The EngineID is the same for every Fake, as two real engines may share theirs.
func (f *Fake) Info(ctx context.Context) (dockerx.Info, error) {
	var info dockerx.Info
	err := f.call(ctx, dockerx.OpInfo, func() error {
		info = f.info()
		return nil
	})
	if err != nil {
		return dockerx.Info{}, err
	}
	return info, nil
}

// VolumeExists implements Engine.
func (f *Fake) VolumeExists(ctx context.Context, name string) (bool, error) {
	exists := false
	err := f.call(ctx, dockerx.OpInspectVolume, func() error {
		_, exists = f.volumes[name]
		return nil
	})
	if err != nil {
		return false, err
	}
	return exists, nil
}

// CreateVolume implements Engine.
func (f *Fake) CreateVolume(ctx context.Context, name string, labels map[string]string) error {
	labels = maps.Clone(labels)
	return f.call(ctx, dockerx.OpCreateVolume, func() error {
		if name == "" {
			return fmt.Errorf("volume without a name: %w", errdefs.ErrInvalidArgument)
		}
		if _, ok := f.volumes[name]; !ok {
			f.volumes[name] = labels
		}
		return nil
	})
}

// RemoveVolume implements Engine.
func (f *Fake) RemoveVolume(ctx context.Context, name string) error {
	return f.call(ctx, dockerx.OpRemoveVolume, func() error {
		delete(f.volumes, name)
		return nil
	})
}
