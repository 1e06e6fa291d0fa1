package controller

import (
	"k8s.io/client-go/util/workqueue"

	"github.com/agbox/agbox/controller/queue"
)

// SimQueue is the queue by which a simulation replaces a real one.
type SimQueue = workqueue.TypedRateLimitingInterface[string]

// Simulate replaces the queues of a controller before Run.
func (c *Controller) Simulate(with func(name string, limiter workqueue.TypedRateLimiter[string]) SimQueue) {
	for _, l := range []*queue.Loop{c.sandboxLoop, c.execLoop, c.agentLoop, c.drainLoop} {
		l.Replace(with)
	}
}
