//go:build docker

package dockertest

import (
	"os/exec"
	"testing"

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

func (s subject) DisconnectOutside(id string) {
	s.t.Helper()
	d, err := s.InspectContainer(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, n := range d.Networks {
		if out, err := exec.CommandContext(s.t.Context(), "docker", "network", "disconnect", n, id).CombinedOutput(); err != nil {
			s.t.Fatalf("docker network disconnect: %v\n%s", err, out)
		}
	}
}
