// Package backoff has the pauses between attempts that fail. Keys of a queue have those of package controller/queue.
package backoff

import "time"

// Backoff doubles the pause with each failure in a row, from Base to at most Max.
type Backoff struct{ Base, Max time.Duration }

// After returns the pause after so many failures in a row; 0 counts as 1.
func (b Backoff) After(failures uint32) time.Duration {
	pause := b.Base
	for i := uint32(1); i < failures && pause < b.Max; i++ {
		pause *= 2
	}
	return min(pause, b.Max)
}
