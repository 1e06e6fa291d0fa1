//go:build docker

package dockertest

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
)

// importConformImage makes the image of the suite from a static busybox, without a registry. It stays: the next run, and
// one at the same time, make the same.
func importConformImage(t testing.TB) {
	t.Helper()
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ImageInspect(t.Context(), ConformImage); err == nil {
		return
	}
	source := image.ImportSource{Source: busyboxRoot(t), SourceName: "-"}
	out, err := c.ImageImport(t.Context(), source, ConformImage, image.ImportOptions{Changes: []string{"USER nobody"}})
	if err != nil {
		t.Fatalf("import %s: %v", ConformImage, err)
	}
	defer out.Close()
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Fatalf("import %s: %v", ConformImage, err)
	}
}

// busyboxRoot returns a root filesystem as a tar archive.
func busyboxRoot(t testing.TB) io.Reader {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal("a static busybox is needed (Debian: busybox-static)")
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
	add(tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, binary)
	for _, name := range []string{"sh", "sleep", "true"} {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}
