//go:build docker

package dockertest

import (
	"testing"

	"github.com/agbox/agbox/dockerx"
)

func TestDockerConforms(t *testing.T) {
	importConformImage(t)
	Conform(t, func(t testing.TB) Engine {
		e, err := dockerx.New(dockerx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	})
}
