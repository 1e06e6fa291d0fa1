package fakehost

import (
	"context"
	"os/exec"
	"time"

	"github.com/agbox/agbox/dockerx"
)

// probeTimeout is for a probe without one of its own.
const probeTimeout = 5 * time.Second

// health runs a container's probe on this machine, once, and says when the engine would have believed it: a success at
// once, a failure when all retries failed.
func health(spec dockerx.ContainerSpec) (dockerx.Health, time.Duration) {
	h := spec.Healthcheck
	if err := probe(h); err != nil {
		return dockerx.HealthUnhealthy, h.Interval*time.Duration(max(h.Retries, 1)) + h.StartPeriod
	}
	return dockerx.HealthHealthy, h.Interval
}

func probe(h *dockerx.Healthcheck) error {
	ctx, cancel := context.WithTimeout(context.Background(), max(h.Timeout, probeTimeout))
	defer cancel()
	command := h.Test[1:]
	if h.Test[0] == "CMD-SHELL" {
		command = []string{"sh", "-c", h.Test[1]}
	}
	return exec.CommandContext(ctx, command[0], command[1:]...).Run()
}
