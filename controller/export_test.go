package controller

import (
	"k8s.io/client-go/util/workqueue"

	"github.com/agbox/agbox/controller/queue"
)

// SimQueue is what a simulation puts in the place of a queue.
type SimQueue = workqueue.TypedRateLimitingInterface[string]

// Simulate replaces the queues of a controller that does not run yet.
func (c *Controller) Simulate(with func(name string, limiter workqueue.TypedRateLimiter[string]) SimQueue) {
	for _, l := range []*queue.Loop{c.sandboxLoop, c.execLoop, c.agentLoop} {
		l.Replace(with)
	}
}
