//go:build docker

package dockertest

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest/busybox"
)

func TestDockerConforms(t *testing.T) {
	busybox.Import(t, "", ConformImage, "USER nobody", "WORKDIR /tmp", "ENV A=image C=image", `ENTRYPOINT ["/bin/sleep"]`, `CMD ["900"]`)
	Conform(t, func(t testing.TB) Subject {
		e, err := dockerx.New(dockerx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return subject{e, t}
	})
}

// subject is Docker, modified with the docker command.
type subject struct {
	*dockerx.Engine
	t testing.TB
}

func (s subject) docker(args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // cleanups call it, too
	defer cancel()
	if out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput(); err != nil {
		s.t.Fatalf("docker %v: %v\n%s", args, err, out)
	}
}

func (s subject) KillOutside(id string) { s.docker("kill", id) }

func (s subject) RemoveVolumeOutside(name string) { s.docker("volume", "rm", "-f", name) }

func (s subject) DisconnectOutside(id string) {
	s.t.Helper()
	d, err := s.InspectContainer(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, n := range d.Networks {
		s.docker("network", "disconnect", n, id)
	}
}
