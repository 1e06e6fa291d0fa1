// Package busybox creates images for tests from the host's static busybox, without a registry.
package busybox

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
)

// passwd has the users that tests use.
const passwd = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"

// cleanTimeout bounds the removal of an image, since the test may have killed the engine.
const cleanTimeout = 20 * time.Second

// Import imports an image named ref, with changes (lines of a Dockerfile), into the engine at host (empty: that of the
// environment), and removes it when the test ends. No other image may have that name there.
func Import(t testing.TB, host, ref string, changes ...string) {
	t.Helper()
	c := Drop(t, host, ref)
	source := image.ImportSource{Source: bytes.NewReader(Root(t)), SourceName: "-"}
	out, err := c.ImageImport(t.Context(), source, ref, image.ImportOptions{Changes: changes})
	if err != nil {
		t.Fatalf("import %s: %v", ref, err)
	}
	defer out.Close()
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Fatalf("import %s: %v", ref, err)
	}
}

// Drop removes an image from the engine at host when the test ends, if it is there and the engine answers. It returns a client
// of that engine, which lives as long.
func Drop(t testing.TB, host, ref string) *client.Client {
	t.Helper()
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer func() { _ = c.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
		defer cancel()
		if _, err := c.ImageRemove(ctx, ref, image.RemoveOptions{Force: true}); err != nil {
			t.Logf("remove %s: %v", ref, err)
		}
	})
	return c
}

// Root returns a root filesystem as a tar archive.
func Root(t testing.TB) []byte {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal("a static busybox is required; install it (Debian: busybox-static)")
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin/", "etc/", "tmp/"} {
		add(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, binary)
	for _, name := range []string{"sh", "sleep", "true"} {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte(passwd))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
