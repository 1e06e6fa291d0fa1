package conformance

import (
	"slices"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// stats has the rows of what sandboxes use.
func stats(t *testing.T, c *client) {
	c.sub(t, "a running sandbox uses CPU, memory and processes in each container", func(c *client) {
		c.limits()
		id := c.ready(required(c.well("db")), func(s *spec) { s.MemoryLimit = "64MiB" })
		of := func(ids ...string) *agboxv1.GetStatsResponse {
			resp, err := c.GetStats(c.ctx(), &agboxv1.GetStatsRequest{SandboxIds: ids})
			c.must(err)
			return resp
		}
		first := of(id)
		if len(first.GetSandboxes()) != 1 || first.GetReadAt() == nil {
			c.Fatalf("stats: %v", first)
		}
		one := first.GetSandboxes()[0]
		if len(one.GetContainers()) != 2 || one.GetSandboxId() != id || one.GetState() != ready {
			c.Fatalf("stats: %v", one)
		}
		primary, db := one.GetContainers()[0], one.GetContainers()[1]
		if primary.GetServiceName() != "" || primary.GetMemoryLimitBytes() != 64<<20 || db.GetServiceName() != "db" || db.GetMemoryLimitBytes() != 0 {
			c.Errorf("stats: %v", one)
		}
		for _, ct := range one.GetContainers() {
			if ct.GetCpuTime().AsDuration() <= 0 || ct.GetMemoryBytes() == 0 || ct.GetPids() == 0 || ct.GetPidsLimit() == 0 {
				c.Errorf("stats: %v", ct)
			}
		}
		among := func() bool {
			return slices.ContainsFunc(of().GetSandboxes(), func(s *agboxv1.SandboxStats) bool { return s.GetSandboxId() == id })
		}
		if !among() {
			c.Error("a running sandbox is missing among all that run")
		}
		c.stops(id)
		if got := of(id).GetSandboxes()[0]; len(got.GetContainers()) != 0 || got.GetState() != stopped || among() {
			c.Errorf("a stopped sandbox: %v, among those that run: %t", got, among())
		}
	})
}
