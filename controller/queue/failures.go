package queue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// failures is the rate limiter of a queue that also keeps, for humans, why the last try of a key failed and when the next one is due. It
// drops a failure when the limiter drops its count.
type failures struct {
	workqueue.TypedRateLimiter[string]

	mu   sync.Mutex
	last map[string]Failure
}

// Failure is the last failure of a key.
type Failure struct {
	Err error
	// RetryAt is when the queue adds the key again, unless another source adds it before.
	RetryAt time.Time
}

func newFailures(limiter workqueue.TypedRateLimiter[string]) *failures {
	return &failures{TypedRateLimiter: limiter, last: map[string]Failure{}}
}

// failed records an error; the queue's AddRateLimited must follow.
func (f *failures) failed(key string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[key] = Failure{Err: err, RetryAt: f.last[key].RetryAt}
}

// When implements workqueue.TypedRateLimiter. If a key is to be added at two times, the queue keeps the earlier one.
func (f *failures) When(key string) time.Duration {
	d := f.TypedRateLimiter.When(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	now, last := time.Now(), f.last[key]
	if next := now.Add(d); !last.RetryAt.After(now) || next.Before(last.RetryAt) {
		last.RetryAt = next
	}
	f.last[key] = last
	return d
}

// Forget implements workqueue.TypedRateLimiter.
func (f *failures) Forget(key string) {
	f.TypedRateLimiter.Forget(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.last, key)
}

// of returns the last failure of a key; the zero value if it does not fail.
func (f *failures) of(key string) Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[key]
}
