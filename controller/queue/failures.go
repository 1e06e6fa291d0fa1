package queue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// failures is the limiter of a queue that also keeps, for people, why the last try of a key failed and when the next one is
// due. It holds what the limiter counts and forgets it at the same moment.
type failures struct {
	workqueue.TypedRateLimiter[string]

	mu   sync.Mutex
	last map[string]Failure
}

// Failure is the last one of a key.
type Failure struct {
	Err error
	// RetryAt is when the queue adds the key again by itself, unless something else does before.
	RetryAt time.Time
}

func newFailures(limiter workqueue.TypedRateLimiter[string]) *failures {
	return &failures{TypedRateLimiter: limiter, last: map[string]Failure{}}
}

// failed notes an error; the queue's AddRateLimited comes next.
func (f *failures) failed(key string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[key] = Failure{Err: err, RetryAt: f.last[key].RetryAt}
}

// When implements workqueue.TypedRateLimiter. Of two times at which a key is to be added the queue keeps the sooner one.
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

// of is the zero value for a key that does not fail.
func (f *failures) of(key string) Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[key]
}
