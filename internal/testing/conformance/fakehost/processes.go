package fakehost

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/dockerx"
)

// boxEnv marks every process of a container, whoever its parent is.
const boxEnv = "AGBOX_FAKEHOST_BOX"

// processes returns the IDs of all processes of a container but zombies.
func (b *box) processes() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well-formed
	for _, file := range all {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(env, []byte(boxEnv+"="+b.id+"\x00")) {
			continue // it has ended, or is of another user
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// signal sends a signal to all processes, until a round finds as many as the round before: meanwhile they may start others.
func (b *box) signal(sig unix.Signal) {
	for seen := -1; ; {
		pids := b.processes()
		for _, pid := range pids {
			_ = unix.Kill(pid, sig) // it has ended meanwhile
		}
		if len(pids) == seen {
			return
		}
		seen = len(pids)
	}
}

func (b *box) freeze(frozen bool) {
	if frozen {
		b.signal(unix.SIGSTOP)
	} else {
		b.signal(unix.SIGCONT)
	}
}

// kill ends all processes as the end of a PID namespace does: none of them sees the end of another.
func (b *box) kill() {
	b.signal(unix.SIGSTOP)
	for len(b.processes()) > 0 {
		b.signal(unix.SIGKILL)
	}
}

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
