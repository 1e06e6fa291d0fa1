package dockertest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing/iotest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

func checkFiles(w *world) {
	id := w.create(w.spec("", ""))
	w.ok(w.e.WriteTar(w.ctx, id, "/tmp", time.Minute, archiveOf(w,
		tar.Header{Name: "./file", Typeflag: tar.TypeReg, Mode: 0o640, Linkname: "12345"},
		tar.Header{Name: "./to-file", Typeflag: tar.TypeSymlink, Linkname: "to-to-file"},
		tar.Header{Name: "./to-to-file", Typeflag: tar.TypeSymlink, Linkname: "/tmp/file"},
		tar.Header{Name: "./to-dir", Typeflag: tar.TypeSymlink, Linkname: "/tmp"},
		tar.Header{Name: "./to-nowhere", Typeflag: tar.TypeSymlink, Linkname: "/nowhere"},
		tar.Header{Name: "./out", Typeflag: tar.TypeSymlink, Linkname: "../../../../tmp/file"},
		tar.Header{Name: "./pipe", Typeflag: tar.TypeFifo, Mode: 0o600},
	)))
	for range 2 {
		w.wantPath(id, "/", dockerx.PathInfo{Mode: fs.ModeDir | 0o755})
		w.wantPath(id, "/etc", dockerx.PathInfo{Mode: fs.ModeDir | 0o755})
		w.wantPath(id, "/etc/passwd", dockerx.PathInfo{Mode: 0o644})
		w.wantPath(id, "/tmp/file", dockerx.PathInfo{Mode: 0o640})
		w.wantPath(id, "/tmp/to-dir/file", dockerx.PathInfo{Mode: 0o640})
		w.wantPath(id, "/tmp/to-file", dockerx.PathInfo{Mode: fs.ModeSymlink | 0o777, LinkTarget: "/tmp/file"})
		w.wantPath(id, "/tmp/to-nowhere", dockerx.PathInfo{Mode: fs.ModeSymlink | 0o777, LinkTarget: "/nowhere"})
		w.wantPath(id, "/tmp/pipe", dockerx.PathInfo{Mode: fs.ModeNamedPipe | 0o600})
		for _, name := range []string{"/no", "/no/such", "/etc/passwd/x", "/etc/passwd/x/y", "/tmp/to-file/x", "/tmp/to-nowhere/x"} {
			w.refused(errOf(w.e.StatPath(w.ctx, id, name)), errdefs.ErrNotFound)
			w.refused(errOf(w.e.ReadContainerFile(w.ctx, id, name, 10)), errdefs.ErrNotFound)
		}
		for _, name := range []string{"/tmp/file", "/tmp/to-file", "/tmp/out", "/tmp/to-dir/to-file"} {
			if content, err := w.e.ReadContainerFile(w.ctx, id, name, 5); err != nil || string(content) != "12345" {
				w.Errorf("%s: %q, %v", name, content, err)
			}
		}
		w.refused(errOf(w.e.ReadContainerFile(w.ctx, id, "/tmp/file", 4)), errdefs.ErrOutOfRange)
		w.refused(errOf(w.e.ReadContainerFile(w.ctx, id, "/tmp/to-nowhere", 4)), errdefs.ErrNotFound)
		for _, name := range []string{"/tmp", "/tmp/pipe", "/tmp/to-dir"} {
			w.refused(errOf(w.e.ReadContainerFile(w.ctx, id, name, 1000)), errdefs.ErrFailedPrecondition)
		}
		w.wantTar(id, "/tmp/file", "file 640 12345")
		w.wantTar(id, "/tmp/to-dir/file", "file 640 12345")
		w.wantTar(id, "/tmp/to-file", "to-file 777 -> to-to-file")
		w.wantTar(id, "/tmp/pipe", "pipe 600 ")
		w.wantTar(id, "/etc/passwd", "passwd 644 ")
		w.wantTar(id, "/tmp/", "tmp/ 755 ", "tmp/file 640 12345", "tmp/to-dir 777 -> /tmp", "tmp/out 777 -> ../../../../tmp/file")
		w.wantTar(id, "/tmp/.", "./ 755 ", "./file 640 12345")
		for _, name := range []string{"/no", "/no/such", "/etc/passwd/x", "/tmp/to-nowhere/x"} {
			w.refused(w.e.ReadTar(w.ctx, id, name, func(io.Reader) error { return errors.New("there is something") }), errdefs.ErrNotFound)
		}
		mine := errors.New("mine")
		if err := w.e.ReadTar(w.ctx, id, "/tmp", func(io.Reader) error { return mine }); !errors.Is(err, mine) {
			w.Errorf("the caller's error became %v", err)
		}
		w.ok(w.e.StartContainer(w.ctx, id))
	}
	w.ok(w.e.RemoveContainer(w.ctx, id))
	w.refused(errOf(w.e.StatPath(w.ctx, id, "/")), errdefs.ErrNotFound)
	w.refused(errOf(w.e.ReadContainerFile(w.ctx, id, "/etc/passwd", 1000)), errdefs.ErrNotFound)
}

// wantTar checks that an archive has entries that start with the given texts: name, mode, and content or target.
func (w *world) wantTar(id, name string, want ...string) {
	w.Helper()
	var got []string
	err := w.e.ReadTar(w.ctx, id, name, func(r io.Reader) error {
		for tr := tar.NewReader(r); ; {
			h, err := tr.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			content, err := io.ReadAll(tr)
			if err != nil {
				return err
			}
			text := string(content)
			if h.Typeflag == tar.TypeSymlink {
				text = "-> " + h.Linkname
			}
			got = append(got, fmt.Sprintf("%s %o %s", h.Name, h.Mode&0o777, text))
		}
	})
	w.ok(err)
	for _, one := range want {
		if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, one) }) {
			w.Errorf("%s: no %q in %q", name, one, got)
		}
	}
}

func (w *world) wantPath(id, name string, want dockerx.PathInfo) {
	w.Helper()
	if got, err := w.e.StatPath(w.ctx, id, name); err != nil || got != want {
		w.Errorf("%s: %s %q, %v; want %s %q", name, got.Mode, got.LinkTarget, err, want.Mode, want.LinkTarget)
	}
}

// archiveOf builds an archive; the content of a regular file is in Linkname.
func archiveOf(w *world, headers ...tar.Header) io.Reader {
	w.Helper()
	var buf bytes.Buffer
	out := tar.NewWriter(&buf)
	for _, h := range headers {
		var content string
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
		}
		h.Size = int64(len(content))
		w.ok(out.WriteHeader(&h))
		_, err := io.WriteString(out, content)
		w.ok(err)
	}
	w.ok(out.Close())
	return &buf
}

func (w *world) wantContent(id, name, want string) {
	w.Helper()
	if got, err := w.e.ReadContainerFile(w.ctx, id, name, 1000); err != nil || string(got) != want {
		w.Errorf("%s: %q, %v; want %q", name, got, err, want)
	}
}

func checkWriteTar(w *world) {
	id := w.create(w.spec("", ""))
	write := func(dir string, headers ...tar.Header) {
		w.Helper()
		w.ok(w.e.WriteTar(w.ctx, id, dir, time.Minute, archiveOf(w, headers...)))
	}
	write("/",
		tar.Header{Name: "./new", Typeflag: tar.TypeDir, Mode: 0o750},
		tar.Header{Name: "./new/file", Typeflag: tar.TypeReg, Mode: 0o600, Linkname: "one"},
		tar.Header{Name: "./un/named/file", Typeflag: tar.TypeReg, Mode: 0o600, Linkname: "two"},
	)
	w.wantPath(id, "/new", dockerx.PathInfo{Mode: fs.ModeDir | 0o750})
	w.wantPath(id, "/un/named", dockerx.PathInfo{Mode: fs.ModeDir | 0o755})
	w.wantContent(id, "/new/file", "one")
	w.wantContent(id, "/un/named/file", "two")
	w.ok(w.e.StartContainer(w.ctx, id))
	write("/new", tar.Header{Name: "./file", Typeflag: tar.TypeReg, Mode: 0o600, Linkname: "three"})
	write("/", tar.Header{Name: "./new", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./new/link", Typeflag: tar.TypeSymlink, Linkname: "/new"})
	w.wantPath(id, "/new", dockerx.PathInfo{Mode: fs.ModeDir | 0o755})
	w.wantContent(id, "/new/file", "three")
	write("/new/link", tar.Header{Name: "./more", Typeflag: tar.TypeReg, Mode: 0o600, Linkname: "four"})
	w.wantContent(id, "/new/more", "four")
	w.kill(id)
	w.wantContent(id, "/new/more", "four")
}

var errOwn = errors.New("the reader's own error")

func checkWriteTarRefusals(w *world) {
	id := w.create(w.spec("", ""))
	file := func(name string) io.Reader {
		return archiveOf(w, tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Linkname: "content"})
	}
	directory := func(name string) io.Reader {
		return archiveOf(w, tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755})
	}
	w.ok(w.e.WriteTar(w.ctx, id, "/tmp", 0, file("./dir/file")))
	for _, tc := range []struct {
		dir     string
		archive io.Reader
		want    error
	}{
		{"/tmp", file("./dir"), errdefs.ErrInternal},
		{"/tmp", directory("./dir/file"), errdefs.ErrInternal},
		{"/tmp", file("./dir/file/x"), errdefs.ErrInternal},
		{"/tmp", file("../../x"), errdefs.ErrInternal},
		{"/tmp", strings.NewReader("not an archive, but long enough for one" + strings.Repeat("x", 1000)), errdefs.ErrInternal},
		{"/tmp", io.LimitReader(file("./half"), 515), errdefs.ErrInternal},
		{"/no/such", file("./x"), errdefs.ErrNotFound},
		{"/etc/passwd", file("./x"), errdefs.ErrFailedPrecondition},
		{"/tmp", io.MultiReader(io.LimitReader(file("./half"), 515), iotest.ErrReader(errOwn)), errOwn},
		{"/tmp", iotest.ErrReader(errOwn), errOwn},
	} {
		err := w.e.WriteTar(w.ctx, id, tc.dir, time.Minute, tc.archive)
		// Current engines treat a destination that is not a directory as a bad request.
		bad := errors.Is(tc.want, errdefs.ErrFailedPrecondition) && errdefs.IsInvalidArgument(err)
		if !bad && !errors.Is(err, tc.want) || errdefs.IsUnavailable(err) {
			w.Errorf("write to %s: %v, want %v", tc.dir, err, tc.want)
		}
	}
	w.wantContent(id, "/tmp/dir/file", "content")
	// Far more than any buffer between the client and the engine holds: the refusal must still arrive.
	err := w.e.WriteTar(w.ctx, id, "/no/such", time.Minute, io.LimitReader(zeros{}, 64<<20))
	w.refused(err, errdefs.ErrNotFound)
	w.ok(w.e.RemoveContainer(w.ctx, id))
	w.refused(w.e.WriteTar(w.ctx, id, "/tmp", time.Minute, file("./x")), errdefs.ErrNotFound)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
