//go:build docker

package dockerx

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestWriteTarKeepsOwnersAndWritesToMounts(t *testing.T) {
	_, e := private(t)
	source := t.TempDir()
	id, err := e.CreateContainer(t.Context(), ContainerSpec{
		Name: uniqueName(), Image: "busybox:1", Cmd: []string{"sh", "-c", "busybox stat -c '%u:%g %a' /d /d/f /d/l /e /e/f > /tmp/out"},
		User: "nobody", Mounts: []Mount{{Source: source, Target: "/m", Writable: true}, {Source: source, Target: "/ro"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	archive := func(headers ...tar.Header) *bytes.Buffer {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &buf
	}
	err = e.WriteTar(t.Context(), id, "/", time.Minute, archive(
		tar.Header{Name: "./tmp", Typeflag: tar.TypeDir, Mode: 0o1777, Uid: 65534},
		tar.Header{Name: "./d", Typeflag: tar.TypeDir, Mode: 0o750, Uid: 65534, Gid: 1001},
		tar.Header{Name: "./d/f", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 1002, Gid: 1003},
		tar.Header{Name: "./d/l", Typeflag: tar.TypeSymlink, Linkname: "/nowhere", Uid: 1004, Gid: 1005},
		tar.Header{Name: "./e/f", Typeflag: tar.TypeReg, Mode: 0o600, Uid: 1002, Gid: 1003},
		tar.Header{Name: "./m/f", Typeflag: tar.TypeReg, Mode: 0o600, Uid: 1002, Gid: 1003},
	))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if !detail(t, e, id).Running {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	got, err := e.ReadContainerFile(t.Context(), id, "/tmp/out", 1000)
	if want := "65534:1001 750\n1002:1003 4755\n1004:1005 777\n0:0 755\n1002:1003 600\n"; err != nil || string(got) != want {
		t.Errorf("owners and modes %q, want %q; %v", got, want, err)
	}
	st, err := os.Stat(filepath.Join(source, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if sys := st.Sys().(*syscall.Stat_t); sys.Uid != 1002 || sys.Gid != 1003 {
		t.Errorf("in the mount: %d:%d", sys.Uid, sys.Gid)
	}
	for dir, name := range map[string]string{"/": "./ro/x", "/ro": "./x"} {
		err := e.WriteTar(t.Context(), id, dir, time.Minute, archive(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600}))
		if err == nil || errdefs.IsUnavailable(err) { // ErrInternal from 20.10, ErrPermissionDenied from current engines
			t.Errorf("write to %s: %v", dir, err)
		}
	}
}
