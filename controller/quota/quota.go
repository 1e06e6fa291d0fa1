// Package quota measures the files of sandboxes and stops their output when they have used up their quota.
package quota

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/wait"
)

// Store lists sandboxes, and their execs that have not ended.
type Store interface {
	LiveIDs() []string
	ActiveExecs(sandboxID string) []string
}

// Files measures sandboxes, and makes PID 1 drop their output.
type Files interface {
	Usage(sandboxID string) (execjournal.Usage, error)
	SetFull(sandboxID string, full bool) error
}

// Options are the dependencies of a Watcher. All are required.
type Options struct {
	Store Store
	Files Files
	// Quota is the configured one in bytes, 0 for none, as of now.
	Quota  func() int64
	Logger *slog.Logger
}

const (
	// quotaEvery is the measuring interval of a sandbox with execs that may soon exceed its quota.
	quotaEvery = 2 * time.Second
	// quotaMost is the measuring interval of all other sandboxes.
	quotaMost = 30 * time.Second
	// quotaPause is the pause between two measurements. Measuring a sandbox with 10,000 logs takes about 20 ms.
	quotaPause = 10 * time.Millisecond
	// quotaSpeed is the assumed maximum write rate of a sandbox in bytes per second: that of a fast disk.
	quotaSpeed = 1 << 30
	// quotaBack is the share of the quota below which a sandbox that exceeded it may store output again.
	quotaBack = 0.9
)

// Watcher knows the last measured size of each sandbox's files. It is derived, and kept in memory only.
type Watcher struct {
	o Options

	mu sync.Mutex
	of map[string]measured
}

// measured is what is known of one sandbox.
type measured struct {
	usage execjournal.Usage
	due   time.Time // when it is measured again, by the monotonic clock
	full  bool
}

// New returns a watcher.
func New(o Options) *Watcher { return &Watcher{o: o, of: map[string]measured{}} }

// quotaOf returns the quota of one sandbox in bytes: the configured one, and at most half of the disk. 0: no limit.
func quotaOf(configured, disk int64) int64 {
	if configured > 0 && disk > 0 {
		return min(configured, disk/2)
	}
	return configured
}

// usedUp judges a measured sandbox; was is the verdict before.
func usedUp(used, quota int64, was bool) bool {
	switch {
	case quota <= 0:
		return false
	case was:
		return float64(used) >= quotaBack*float64(quota)
	}
	return used >= quota
}

// measuredAfter is how long a sandbox can't use up its quota. Without one nothing depends on what it uses.
func measuredAfter(used, quota int64) time.Duration {
	if quota <= 0 {
		return quotaMost
	}
	return min(max(time.Duration((quota-used)/quotaSpeed)*time.Second, quotaEvery), quotaMost)
}

// logLimit is the limit of each log of an exec that starts now: the configured one, or the rest of its sandbox's
// quota. 0: none.
func logLimit(configured, quota, used int64) int64 {
	if quota <= 0 {
		return configured
	}
	left := max(quota-used, 1) // 0 would be no limit
	if configured <= 0 {
		return left
	}
	return min(configured, left)
}

// LogLimit is the limit in bytes of each log of an exec that starts now: configured, or the rest of its sandbox's quota. 0: none.
func (w *Watcher) LogLimit(sandboxID string, configured int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.of[sandboxID].usage
	return logLimit(configured, quotaOf(w.o.Quota(), u.Disk), u.Bytes)
}

// Full is the number of sandboxes that have used up their quota, as last measured.
func (w *Watcher) Full() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.of {
		if m.full {
			n++
		}
	}
	return n
}

// Run measures the sandboxes that have execs until ctx ends, one at a time.
func (w *Watcher) Run(ctx context.Context) {
	for wait.For(ctx, quotaEvery) == nil {
		live := map[string]bool{}
		for _, id := range w.o.Store.LiveIDs() {
			live[id] = true
			if len(w.o.Store.ActiveExecs(id)) == 0 || !w.isDue(id) {
				continue
			}
			if err := w.measure(id); err != nil {
				w.o.Logger.Warn("measuring the files of a sandbox failed", "sandbox_id", id, "err", err)
			}
			if wait.For(ctx, quotaPause) != nil {
				return
			}
		}
		w.keep(live)
	}
}

// measure measures one sandbox, and notifies PID 1 when its quota is used up or no more. The file that says so outlives the daemon.
func (w *Watcher) measure(id string) error {
	u, err := w.o.Files.Usage(id)
	if err != nil {
		return err
	}
	quota := quotaOf(w.o.Quota(), u.Disk)
	full, changed := w.note(id, u, quota)
	if changed {
		w.o.Logger.Warn("quota of a sandbox", "sandbox_id", id, "used_up", full, "bytes", u.Bytes, "quota_bytes", quota)
	}
	return w.o.Files.SetFull(id, full)
}

func (w *Watcher) isDue(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !time.Now().Before(w.of[id].due)
}

func (w *Watcher) note(id string, u execjournal.Usage, quota int64) (full, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.of[id].full
	full = usedUp(u.Bytes, quota, was)
	w.of[id] = measured{usage: u, due: time.Now().Add(measuredAfter(u.Bytes, quota)), full: full}
	return full, full != was
}

// keep forgets all sandboxes but those that live.
func (w *Watcher) keep(live map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.of, func(id string, _ measured) bool { return !live[id] })
}
