// Package busybox creates images for tests from the host's static busybox, without a registry.
package busybox

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"testing/fstest"
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
	link := &fstest.MapFile{Mode: fs.ModeSymlink | fs.ModePerm, Data: []byte("busybox")}
	directory := &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err = w.AddFS(fstest.MapFS{
		"bin": directory, "bin/busybox": {Mode: 0o755, Data: binary}, "bin/sh": link, "bin/sleep": link, "bin/true": link,
		"etc": directory, "etc/passwd": {Mode: 0o644, Data: []byte(passwd)},
		"tmp": directory,
	})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
