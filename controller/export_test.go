package controller

import "k8s.io/client-go/util/workqueue"

// SimQueue is what a simulation puts in the place of a queue.
type SimQueue = workqueue.TypedRateLimitingInterface[string]

// Simulate replaces the queues of a controller that does not run yet.
func (c *Controller) Simulate(queue func(name string, limiter workqueue.TypedRateLimiter[string]) SimQueue) {
	for _, l := range []*loop{c.sandboxes, c.execs, c.agents} {
		l.queue.ShutDown()
		l.queue = queue(l.name, l.failures)
	}
}
