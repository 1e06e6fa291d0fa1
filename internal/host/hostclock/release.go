//go:build !faults

package hostclock

import "time"

// change does nothing in a build without faults.
type change struct{}

func injected() change { return change{} }

func (change) now(t time.Time) time.Time { return t }

func (change) times(t Times) Times { return t }
