//go:build docker

package hostfiles

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/agbox/agbox/dockerx"
)

// The engine also unpacks compressed archives, which it detects by the first bytes: those of the first entry's name.
func TestEngineUnpacksAStreamWhoseFirstNameLooksCompressed(t *testing.T) {
	t.Parallel()
	e, err := dockerx.New(dockerx.Options{})
	must(t, err)
	t.Cleanup(func() { _ = e.Close() })
	id, err := e.CreateContainer(t.Context(), dockerx.ContainerSpec{Name: "agbox-test-" + uuid.NewString(), Image: "agbox-base:dev"})
	must(t, err)
	t.Cleanup(func() {
		if err := e.RemoveContainer(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
	root := tree(t, "file")
	for _, target := range []string{"/BZh", "/BZhip/deep/file"} {
		r, w := io.Pipe()
		go func() {
			w.CloseWithError(Pack(t.Context(), w, Copy{Source: root + "/file", Target: target, Missing: Parents(target)}))
		}()
		if err := e.WriteTar(t.Context(), id, "/", time.Minute, r); err != nil {
			t.Errorf("%s: %v", target, err)
		} else if data, err := e.ReadContainerFile(t.Context(), id, target, 100); string(data) != "file" || err != nil {
			t.Errorf("%s: %q, %v", target, data, err)
		}
	}
}
