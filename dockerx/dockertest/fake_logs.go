package dockertest

import (
	"context"
	"slices"

	"github.com/agbox/agbox/dockerx"
)

// Print makes a container, by ID or name, print a line without its newline. One that does not exist prints nothing.
func (f *Fake) Print(id string, stderr bool, line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, err := f.find(id); err == nil {
		c.logs = append(c.logs, dockerx.LogRecord{Time: f.clock().UTC(), Stderr: stderr, Text: []byte(line + "\n")})
	}
}

// ReadLogs implements Subject.
func (f *Fake) ReadLogs(ctx context.Context, id string, tail int) ([]dockerx.LogRecord, error) {
	return askOf(ctx, f, dockerx.OpReadLogs, id, func(c *fakeContainer) ([]dockerx.LogRecord, error) {
		if tail > 0 && tail < len(c.logs) {
			return slices.Clone(c.logs[len(c.logs)-tail:]), nil
		}
		return slices.Clone(c.logs), nil
	})
}
