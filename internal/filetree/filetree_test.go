package filetree_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/filetree"
)

// nasty creates a tree with everything that cp -a copies.
func nasty(t testing.TB, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	must(os.MkdirAll(at("empty"), 0o755))
	must(os.MkdirAll(at("a/b"), 0o755))
	must(os.WriteFile(at("a/b/file"), []byte("content\n"), 0o640))
	must(os.WriteFile(at("a/zero"), nil, 0o600))
	must(os.Link(at("a/b/file"), at("a/hard link")))
	must(os.Symlink("b/file", at("a/relative")))
	must(os.Symlink("/etc/passwd", at("a/absolute")))
	must(os.Symlink("nowhere", at("dangling")))
	must(os.Link(at("dangling"), at("dangling, again"))) // a hard link to a symbolic link
	must(os.Symlink(strings.Repeat("x", 3000), at("long")))
	must(os.WriteFile(at("new\nline"), []byte("1"), 0o644))
	must(os.WriteFile(at("bad\xffbyte"), []byte("2"), 0o644))
	must(os.WriteFile(at("ünïcode"), []byte("3"), 0o644))
	must(os.WriteFile(at(strings.Repeat("n", 255)), []byte("4"), 0o644))
	must(os.WriteFile(at("-rf"), []byte("5"), 0o644))
	must(os.WriteFile(at("suid"), []byte("6"), 0o755))
	must(unix.Chmod(at("suid"), 0o6755))
	must(unix.Mkfifo(at("fifo"), 0o666))
	must(unix.Chmod(at("fifo"), 0o666))
	deep := at("deep")
	for i := range 100 {
		deep = filepath.Join(deep, fmt.Sprintf("level-%d", i))
	}
	must(os.MkdirAll(deep, 0o755))
	must(os.WriteFile(filepath.Join(deep, "bottom"), []byte("7"), 0o644))
	sparse, err := os.Create(at("sparse"))
	must(err)
	_, err = sparse.WriteAt([]byte("middle"), 8<<20)
	must(err)
	must(sparse.Truncate(16<<20 + 17))
	must(sparse.Close())
	if err := unix.Setxattr(at("a/b/file"), "user.colour", []byte("blue\x00green"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	if err := unix.Setxattr(at("a/b"), "user.dir", []byte("yes"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	must(os.MkdirAll(at("read-only"), 0o755))
	must(os.WriteFile(at("read-only/inside"), []byte("8"), 0o444))
	must(os.Chmod(at("read-only"), 0o555))
	t.Cleanup(func() { _ = os.Chmod(at("read-only"), 0o755) })
	if os.Geteuid() == 0 {
		must(os.Lchown(at("a/b"), 1234, 4321))
		must(os.Lchown(at("dangling"), 77, 88))
	}
	old := time.Date(2001, 2, 3, 4, 5, 6, 123456789, time.UTC)
	for _, name := range []string{"a/b/file", "dangling", "fifo", "a/b", "a", "read-only", "."} {
		ts := unix.NsecToTimespec(old.UnixNano())
		must(unix.UtimesNanoAt(unix.AT_FDCWD, at(name), []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW))
		old = old.Add(time.Nanosecond)
	}
}

// describe lists a tree: everything that stat and getxattr tell, and which names are links of one file.
func describe(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	first := map[uint64]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%q %o %d:%d %d.%d", name, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %d %x", len(data), bytes.TrimRight(data, "\x00"))
		case unix.S_IFLNK:
			text, _ := os.Readlink(path)
			fmt.Fprintf(&b, " -> %q", text)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
			if first[st.Ino] == "" {
				first[st.Ino] = name
			}
			fmt.Fprintf(&b, " link of %q", first[st.Ino])
		}
		list := make([]byte, 4096)
		n, _ := unix.Llistxattr(path, list)
		for attr := range strings.SplitSeq(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
			value := make([]byte, 4096)
			if n, err := unix.Lgetxattr(path, attr, value); err == nil && attr != "" {
				fmt.Fprintf(&b, " %s=%q", attr, value[:n])
			}
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// copyTree packs src and unpacks it in dir at the same time.
func copyTree(src, dir string, o filetree.PackOptions, uo filetree.UnpackOptions) (filetree.Counts, error) {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(filetree.Pack(w, src, o)) }()
	n, err := filetree.Unpack(r, dir, uo)
	_ = r.CloseWithError(errors.New("unpacked"))
	return n, err
}

func TestThereAndBackEqualsCopyWithArchive(t *testing.T) {
	root := t.TempDir()
	src, want, got := filepath.Join(root, "src"), filepath.Join(root, "want"), filepath.Join(root, "got")
	nasty(t, src)
	for _, dir := range []string{want, got} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", "-a", src, want+"/x").CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = os.Chmod(want+"/x/read-only", 0o755); _ = os.Chmod(got+"/x/read-only", 0o755) })
	var skipped []string
	tell := func(s string) { skipped = append(skipped, s) }
	keep := filetree.UnpackOptions{KeepOwners: true, Skipped: tell}
	if _, err := copyTree(src, got, filetree.PackOptions{Name: "x", Skipped: tell}, keep); err != nil {
		t.Fatal(err)
	}
	if len(skipped) > 0 {
		t.Errorf("skipped: %q", skipped)
	}
	a, b := strings.Split(describe(t, want+"/x"), "\n"), strings.Split(describe(t, got+"/x"), "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Fatalf("line %d differs:\ncp -a %s\nours  %s", i, a[min(i, len(a)-1)], b[min(i, len(b)-1)])
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(got+"/x/sparse", &st); err != nil || st.Blocks*512 > 1<<20 {
		t.Errorf("the sparse file takes %d bytes, %v", st.Blocks*512, err)
	}
	// Once more over the same tree: everything is replaced.
	if _, err := copyTree(src, got, filetree.PackOptions{Name: "x"}, keep); err != nil {
		t.Fatal(err)
	}
	if again := describe(t, got+"/x"); again != strings.Join(b, "\n") {
		t.Error("a second copy changed the tree")
	}
}

func TestPackSkipsSocketsAndTellsOfChanges(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	big, err := os.Create(filepath.Join(dir, "shrinks"))
	if err != nil {
		t.Fatal(err)
	}
	defer big.Close()
	if err := big.Truncate(4 << 20); err != nil {
		t.Fatal(err)
	}
	var skipped []string
	r, w := io.Pipe()
	go func() {
		_ = w.CloseWithError(filetree.Pack(w, dir, filetree.PackOptions{Name: "x", Skipped: func(s string) { skipped = append(skipped, s) }}))
	}()
	tr, names := tar.NewReader(r), 0
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names++
		if h.Name == "x/shrinks" {
			if err := big.Truncate(1 << 20); err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, tr); n != 4<<20 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(skipped, "\n")
	if names != 2 || len(skipped) != 2 || !strings.Contains(all, "a socket is not copied") || !strings.Contains(all, "it shrank while it was read") {
		t.Errorf("%d names, %q", names, skipped)
	}
}

// archive makes a tar stream of headers; a regular file's content is its name.
func archive(t testing.TB, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = tw.Write([]byte(h.Name))
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestUnpackNeverLeavesItsDirectory(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	link := func(kind byte, name, target string) tar.Header {
		return tar.Header{Typeflag: kind, Name: name, Linkname: target}
	}
	for name, c := range map[string]struct {
		headers []tar.Header
		fails   bool
	}{
		"parent":                                  {[]tar.Header{file("../victim")}, true},
		"parent in the middle":                    {[]tar.Header{file("a/../../victim")}, true},
		"absolute names are below the directory":  {[]tar.Header{file("/victim")}, false},
		"through an absolute link":                {[]tar.Header{link(tar.TypeSymlink, "l", "%OUT"), file("l/victim")}, true},
		"through a relative link":                 {[]tar.Header{link(tar.TypeSymlink, "l", "../out"), file("l/victim")}, true},
		"through two links":                       {[]tar.Header{link(tar.TypeSymlink, "m", ".."), link(tar.TypeSymlink, "l", "m/out"), file("l/victim")}, true},
		"over a link to a file":                   {[]tar.Header{link(tar.TypeSymlink, "l", "%OUT/victim"), file("l")}, false},
		"a directory over a link":                 {[]tar.Header{link(tar.TypeSymlink, "l", "%OUT"), {Typeflag: tar.TypeDir, Name: "l", Mode: 0o777}}, true},
		"a hard link to a file outside":           {[]tar.Header{link(tar.TypeLink, "l", "../out/victim")}, true},
		"a hard link through a link":              {[]tar.Header{link(tar.TypeSymlink, "d", "%OUT"), link(tar.TypeLink, "l", "d/victim")}, true},
		"a hard link to a link, then over it":     {[]tar.Header{link(tar.TypeSymlink, "s", "%OUT/victim"), link(tar.TypeLink, "l", "s"), file("l")}, false},
		"a link that was there":                   {[]tar.Header{file("old/victim")}, true},
		"a fifo through a link":                   {[]tar.Header{link(tar.TypeSymlink, "l", "%OUT"), {Typeflag: tar.TypeFifo, Name: "l/fifo"}}, true},
		"the mode of the directory itself":        {[]tar.Header{{Typeflag: tar.TypeDir, Name: "./", Mode: 0o777}}, false},
		"a directory that a file replaces":        {[]tar.Header{{Typeflag: tar.TypeDir, Name: "d", Mode: 0o755}, file("d/x"), file("d")}, true},
		"directories that are missing are made":   {[]tar.Header{file("p/q/r")}, false},
		"a link whose target is not in there":     {[]tar.Header{link(tar.TypeLink, "l", "none")}, true},
		"a link inside the directory is followed": {[]tar.Header{{Typeflag: tar.TypeDir, Name: "usr", Mode: 0o755}, link(tar.TypeSymlink, "lib", "usr"), file("lib/x")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			out, in := filepath.Join(root, "out"), filepath.Join(root, "in")
			for _, err := range []error{
				os.Mkdir(out, 0o755), os.Mkdir(in, 0o750), os.WriteFile(out+"/victim", []byte("safe"), 0o600), os.Symlink(out, in+"/old"),
				os.Chtimes(out, time.Unix(1, 0), time.Unix(1, 0)),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			before := describe(t, out)
			for i := range c.headers {
				c.headers[i].Linkname = strings.Replace(c.headers[i].Linkname, "%OUT", out, 1)
			}
			_, err := filetree.Unpack(archive(t, c.headers...), in, filetree.UnpackOptions{})
			if (err != nil) != c.fails || c.fails && !errors.Is(err, filetree.ErrArchive) && !errors.Is(err, filetree.ErrType) {
				t.Errorf("%v", err)
			}
			if after := describe(t, out); after != before {
				t.Errorf("before:\n%safter:\n%s", before, after)
			}
			if st, _ := os.Stat(in); st.Mode().Perm() != 0o750 {
				t.Errorf("the directory has mode %v", st.Mode())
			}
		})
	}
}

func TestUnpackRefusesDamage(t *testing.T) {
	whole := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "a"}, tar.Header{Typeflag: tar.TypeReg, Name: "b"}).Bytes()
	damaged := bytes.Clone(whole)
	damaged[3]++
	for name, data := range map[string][]byte{"cut": whole[:512], "damaged": damaged, "no archive": bytes.Repeat([]byte("x"), 4096)} {
		if _, err := filetree.Unpack(bytes.NewReader(data), t.TempDir(), filetree.UnpackOptions{}); !errors.Is(err, filetree.ErrArchive) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeReg, Name: "a/b"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: ".."}).Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		root := t.TempDir()
		if err := os.Mkdir(root+"/in", 0o755); err != nil {
			t.Fatal(err)
		}
		_, _ = filetree.Unpack(bytes.NewReader(data), root+"/in", filetree.UnpackOptions{})
		if list, _ := os.ReadDir(root); len(list) != 1 {
			t.Errorf("%v", list)
		}
	})
}

func TestAnUntrustedArchiveGainsNothing(t *testing.T) {
	dir := t.TempDir()
	var skipped []string
	_, err := filetree.Unpack(archive(t,
		tar.Header{Typeflag: tar.TypeReg, Name: "suid", Mode: 0o6755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x", "SCHILY.xattr.user.colour": "red"}},
		tar.Header{Typeflag: tar.TypeChar, Name: "mem", Devmajor: 1, Devminor: 1, Mode: 0o666},
	), dir, filetree.UnpackOptions{Untrusted: true, Skipped: func(s string) { skipped = append(skipped, s) }})
	if err != nil || len(skipped) != 1 || !strings.Contains(skipped[0], "mem: a device") {
		t.Errorf("%q, %v", skipped, err)
	}
	if st, err := os.Stat(dir + "/suid"); err != nil || st.Mode() != 0o755 {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := os.Lstat(dir + "/mem"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
