//go:build docker

package dockertest

import (
	"testing"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest/busybox"
)

func TestDockerConforms(t *testing.T) {
	busybox.Import(t, "", ConformImage, "USER nobody", "WORKDIR /tmp", "ENV A=image C=image", `ENTRYPOINT ["/bin/sleep"]`, `CMD ["900"]`)
	Conform(t, func(t testing.TB) Engine {
		e, err := dockerx.New(dockerx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	})
}
