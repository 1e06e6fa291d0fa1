// Package wait waits for time that a context can cut short.
package wait

import (
	"context"
	"time"
)

// For waits for d, or returns the context's error once it ends.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
