package controller

import (
	"context"
	"sync"
	"time"

	"github.com/agbox/agbox/internal/wait"

	"github.com/agbox/agbox/internal/host/execjournal"
)

const (
	// quotaEvery is how often a sandbox with execs is measured that may soon use up its quota, quotaMost how often any other,
	// and quotaPause what others get between two of them: a sandbox with 10,000 logs takes some 20 ms.
	quotaEvery = 2 * time.Second
	quotaMost  = 30 * time.Second
	quotaPause = 10 * time.Millisecond
	// quotaSpeed is how many bytes a second a sandbox is taken to store at most: what a fast disk takes.
	quotaSpeed = 1 << 30
	// quotaBack is the share of the quota below which a sandbox that used it up may store output again.
	quotaBack = 0.9
)

// quotas holds the last measured size of each sandbox's logs. It is derived, and kept in memory only.
type quotas struct {
	mu   sync.Mutex
	seen map[string]execjournal.Usage
	due  map[string]time.Time // when it is measured again, by the monotonic clock
	full map[string]bool
}

func newQuotas() *quotas {
	return &quotas{seen: map[string]execjournal.Usage{}, due: map[string]time.Time{}, full: map[string]bool{}}
}

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

// logLimitOf is the logLimit of an exec of a sandbox.
func (c *Controller) logLimitOf(sandboxID string, s Settings) int64 {
	c.quotas.mu.Lock()
	defer c.quotas.mu.Unlock()
	u := c.quotas.seen[sandboxID]
	return logLimit(s.LogLimit, quotaOf(s.SandboxQuota, u.Disk), u.Bytes)
}

// OverQuota returns how many sandboxes have used up their quota, as last measured.
func (c *Controller) OverQuota() int {
	c.quotas.mu.Lock()
	defer c.quotas.mu.Unlock()
	return len(c.quotas.full)
}

// watchQuotas measures the sandboxes that have execs until ctx ends, one at a time.
func (c *Controller) watchQuotas(ctx context.Context) {
	for wait.For(ctx, quotaEvery) == nil {
		live := map[string]bool{}
		for _, id := range c.cfg.Store.LiveIDs() {
			live[id] = true
			if len(c.cfg.Store.ActiveExecs(id)) == 0 || !c.quotas.isDue(id) {
				continue
			}
			if err := c.measure(id); err != nil {
				c.log.Warn("measuring the files of a sandbox failed", "sandbox_id", id, "err", err)
			}
			if wait.For(ctx, quotaPause) != nil {
				return
			}
		}
		c.quotas.keep(live)
	}
}

// measure looks at one sandbox, and tells PID 1 when its quota is used up or no more. The file that says so stays over a
// restart of the daemon.
func (c *Controller) measure(id string) error {
	u, err := c.cfg.Execs.Usage(id)
	if err != nil {
		return err
	}
	quota := quotaOf(c.inForce().SandboxQuota, u.Disk)
	full, changed := c.quotas.note(id, u, quota)
	if changed {
		c.log.Warn("quota of a sandbox", "sandbox_id", id, "used_up", full, "bytes", u.Bytes, "quota_bytes", quota)
	}
	return c.cfg.Execs.SetFull(id, full)
}

func (q *quotas) isDue(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !time.Now().Before(q.due[id])
}

func (q *quotas) note(id string, u execjournal.Usage, quota int64) (full, changed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.full[id]
	q.seen[id], full = u, usedUp(u.Bytes, quota, was)
	q.due[id] = time.Now().Add(measuredAfter(u.Bytes, quota))
	if full {
		q.full[id] = true
	} else {
		delete(q.full, id)
	}
	return full, full != was
}

// keep forgets all sandboxes but those that live.
func (q *quotas) keep(live map[string]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id := range q.seen {
		if !live[id] {
			delete(q.seen, id)
			delete(q.due, id)
			delete(q.full, id)
		}
	}
}
