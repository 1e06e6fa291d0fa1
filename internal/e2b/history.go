package e2b

import (
	"context"
	"slices"
	"sync"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/wait"
)

const (
	// sampleEvery is the time between two samples, and samplesKept the most of a sandbox: an hour of them.
	sampleEvery = 30 * time.Second
	samplesKept = 120
	// mostSampled bounds the sandboxes that have samples, and so their memory, to some 6 MB.
	mostSampled = 1000
)

// sample is what the primary of a sandbox had used at a time, as ContainerStats.
type sample struct {
	at            time.Time
	cpu           time.Duration
	memory, limit uint64 // in bytes
}

// history has the newest samples of sandboxes, oldest first. It is lost with the daemon, and that of a sandbox when it is stopped.
type history struct {
	mu      sync.Mutex
	samples map[string][]sample
}

// Sample records what running sandboxes use, until ctx ends.
func (g *Gateway) Sample(ctx context.Context) {
	for wait.For(ctx, sampleEvery) == nil {
		if now, err := g.api.Stats(ctx); err == nil { // otherwise the next one is later
			g.history.add(now)
		}
	}
}

// add adds a reading of all running sandboxes.
func (h *history) add(now *agboxv1.GetStatsResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := map[string][]sample{}
	room := mostSampled - len(h.samples)
	for id, s := range samplesOf(now) {
		old := h.samples[id]
		if len(old) > 0 && !s.at.After(old[len(old)-1].at) { // the clock was set back
			old = nil
		}
		if _, known := h.samples[id]; !known {
			if room == 0 {
				continue
			}
			room--
		}
		old = old[max(0, len(old)-samplesKept+1):]
		kept[id] = append(slices.Clip(old), s) // another array: readers have the old one
	}
	h.samples = kept
}

// between returns the metrics of a sandbox from its samples of a range: one less than samples, as each is the use since the one before.
func (h *history) between(sb *agboxv1.SandboxHandle, start, end int64) []metric {
	h.mu.Lock()
	samples := h.samples[sb.GetSandboxId()]
	h.mu.Unlock() // no sample ever changes
	found := []metric{}
	for i := 1; i < len(samples); i++ {
		if at := samples[i].at.Unix(); at < start || end != 0 && at > end || samples[i].cpu < samples[i-1].cpu { // its container was started again
			continue
		}
		found = append(found, metricOf(sb.GetSpec(), samples[i-1], samples[i]))
	}
	return found
}
