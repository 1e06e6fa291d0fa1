package diskspace

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/docker/go-units"

	"github.com/agbox/agbox/internal/wait"
)

// lookEvery is the interval between readings: within it, a disk written at 1 GB/s loses at most the default low-water mark of
// a large disk.
const lookEvery = 500 * time.Millisecond

// Place is a directory whose file system is watched.
type Place struct {
	// Name is a metric label: "data", "logs", "docker".
	Name string
	// Words describe the disk in messages: "of the data directory".
	Words string
	Path  string
	// Where returns the path for each reading if Path is empty; "": unknown, and the disk counts as not low. It must not block.
	Where func() string
}

// Options configure a Watcher.
type Options struct {
	// Places are watched; the ballast is on the first one's file system. Of several on one file system only the first counts.
	Places []Place
	// Ballast is the path of the ballast, a directory that New creates on the file system of Places[0].
	Ballast string
	// Reserve is the size of the ballast in bytes; 0: the default for the size of the file system.
	Reserve int64
	// LowWater is the mark in bytes; 0: the default for the size of each file system. See SetLowWater.
	LowWater int64
	// Observe is called after each reading of a place.
	Observe func(place string, free int64, low bool)
	// Released is called whenever a piece of the ballast was released.
	Released func()
	Logger   *slog.Logger
}

// Watcher decides whether there is room for new work. Its methods may be called from any goroutine.
type Watcher struct {
	o       Options
	ballast ballast

	checking sync.Mutex // held by Check

	mu       sync.Mutex
	lowWater int64
	noRoom   map[string]string // by low place, the reason
	returned func()
	useless  bool // the file system does not support a ballast
}

// New returns a Watcher after a first reading, with the ballast created if there is room. It never fails: a disk that can't be
// read counts as not low.
func New(o Options) *Watcher {
	w := &Watcher{o: o, ballast: ballast{path: o.Ballast}, lowWater: o.LowWater, noRoom: map[string]string{}}
	w.Check()
	return w
}

// Run reads all places twice a second until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	for wait.For(ctx, lookEvery) == nil {
		w.Check()
	}
}

// SetLowWater changes the mark for later readings; 0: the default for the size of each file system.
func (w *Watcher) SetLowWater(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lowWater = bytes
}

// OnReturn sets the function that is called when there is room on all disks again. It must not block.
func (w *Watcher) OnReturn(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returned = fn
}

// NoRoom returns the reason, in one sentence, why new work is refused; empty when it is accepted. It does no I/O.
func (w *Watcher) NoRoom() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.o.Places {
		if why := w.noRoom[p.Name]; why != "" {
			return why
		}
	}
	return ""
}

// MakeRoom releases a piece of the ballast and reports whether that freed space. Afterwards new work is refused until the ballast
// is complete again.
func (w *Watcher) MakeRoom() bool {
	if !w.ballast.release() {
		return false
	}
	w.mu.Lock()
	first, level := w.o.Places[0], slog.LevelDebug
	if w.noRoom[first.Name] == "" {
		w.noRoom[first.Name], level = "the disk "+first.Words+" is full: "+remedy, slog.LevelWarn
	}
	w.mu.Unlock()
	w.o.Released()
	w.o.Logger.Log(context.Background(), level, "the disk is full; released a piece of the ballast", "disk", first.Name, "path", w.o.Ballast)
	return true
}

// ReserveBytes is the size of the ballast, in bytes; the database preallocates as much. 0 when the disk can't be read.
func (w *Watcher) ReserveBytes() int64 {
	r, _, err := read(w.o.Places[0].Path)
	if err != nil {
		return 0
	}
	return w.reserve(r)
}

func (w *Watcher) reserve(r Reading) int64 {
	return cmp.Or(w.o.Reserve, Reserve(r.Total))
}

// RoomNow returns what NoRoom returns after a Check.
func (w *Watcher) RoomNow() string {
	w.Check()
	return w.NoRoom()
}

// Check reads and judges every place once.
func (w *Watcher) Check() {
	w.checking.Lock()
	defer w.checking.Unlock()
	before := w.NoRoom()
	seen := map[uint64]bool{}
	for i, p := range w.o.Places {
		if p.Path == "" && p.Where != nil {
			p.Path = p.Where()
		}
		r, device, err := read(p.Path)
		if err != nil || seen[device] {
			w.set(p, "") // an unknown or missing directory, or a second place on one file system
			continue
		}
		seen[device] = true
		w.judge(p, r, i == 0)
	}
	w.mu.Lock()
	returned := w.returned
	w.mu.Unlock()
	if before != "" && w.NoRoom() == "" && returned != nil {
		returned()
	}
}

func (w *Watcher) judge(p Place, r Reading, withBallast bool) {
	w.mu.Lock()
	m := Marks{Low: cmp.Or(w.lowWater, LowWater(r.Total))}
	wasLow := w.noRoom[p.Name] != ""
	withBallast = withBallast && !w.useless
	w.mu.Unlock()
	if withBallast {
		m.Ballast, r.Ballast = w.reserve(r), w.ballast.held()
	}
	v := Decide(m, r, wasLow)
	if v.MakeBallast && w.makeBallast(m.Ballast) {
		r.Free -= m.Ballast - r.Ballast
		r.Ballast = m.Ballast
		v = Decide(m, r, wasLow)
	}
	why := ""
	if v.Low {
		why = sentence(p, m, r)
	}
	w.set(p, why)
	w.o.Observe(p.Name, r.Free, v.Low)
	if v.Low != wasLow {
		w.o.Logger.Warn("disk space", "disk", p.Name, "path", p.Path, "low", v.Low, "free_bytes", r.Free, "free_inodes", r.FreeInodes,
			"low_water_bytes", m.Low, "ballast_bytes", r.Ballast)
	}
}

// makeBallast reports whether the ballast is complete now.
func (w *Watcher) makeBallast(size int64) bool {
	err := w.ballast.make(size)
	if err == nil {
		return w.ballast.held() >= size
	}
	if isFull(err) {
		return false
	}
	w.o.Logger.Error("cannot create the ballast: on a full disk commits have only the reserve in the database", "err", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.useless = true
	return false
}

func (w *Watcher) set(p Place, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noRoom[p.Name] = why
}

const remedy = "new sandboxes, execs and prompts are refused until there is room; delete sandboxes, or free space on it"

func sentence(p Place, m Marks, r Reading) string {
	var b strings.Builder
	fmt.Fprintf(&b, "the disk %s has %s left", p.Words, units.BytesSize(float64(r.Free)))
	switch {
	case r.Free < m.Low:
		fmt.Fprintf(&b, ", less than disk.low_water (%s)", units.BytesSize(float64(m.Low)))
	case r.Inodes > 0 && r.FreeInodes < inodesLow:
		fmt.Fprintf(&b, " and %d inodes", r.FreeInodes)
	case r.Ballast < m.Ballast:
		fmt.Fprintf(&b, ", not enough for disk.low_water (%s) and disk.reserve (%s)", units.BytesSize(float64(m.Low)), units.BytesSize(float64(m.Ballast)))
	}
	return b.String() + ": " + remedy
}
