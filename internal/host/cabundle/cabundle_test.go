package cabundle_test

import (
	"bytes"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/cabundle"
)

func block(kind string, n int) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes.Repeat([]byte{byte(n)}, 900)})
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestFindTheFirstRegularFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if path, _ := cabundle.Find("", dir, file); path != "" {
		t.Errorf("%q", path)
	}
	put(t, file, []byte("one"))
	path, first := cabundle.Find("", dir, file, "/etc/passwd")
	if path != file {
		t.Errorf("%q", path)
	}
	put(t, file, []byte("two"))
	if _, second := cabundle.Find(file); second == first {
		t.Error("two files have one ID")
	}
}

// A file that is too large ends with a whole certificate.
func TestReadCutsBehindACertificate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bundle")
	one := block("CERTIFICATE", 1)
	for name, c := range map[string]struct{ content, want []byte }{
		"all":                         {one, one},
		"no text":                     {nil, nil},
		"whole certificates":          {bytes.Repeat(one, cabundle.MaxBytes/len(one)+1), bytes.Repeat(one, cabundle.MaxBytes/len(one))},
		"text behind the certificate": {append(bytes.Clone(one), strings.Repeat("# \n", cabundle.MaxBytes)...), one},
		"no certificate":              {bytes.Repeat([]byte{'x'}, cabundle.MaxBytes+1), nil},
	} {
		put(t, path, c.content)
		got, _, cut, err := cabundle.Read(path)
		if want := len(c.content) > cabundle.MaxBytes; err != nil || cut != want || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %d bytes of %d, want %d; cut %v, want %v; %v", name, len(got), len(c.content), len(c.want), cut, want, err)
		}
	}
	if _, _, _, err := cabundle.Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error for no file")
	}
}

// A sandbox can make a pipe of a bundle between Find and Read, and write nothing into it: PID 1 must not wait.
func TestAPipeIsNoBundle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bundle")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Second, func() { _ = held.Close() }) // so that a Read that waits ends
	if content, _, _, err := cabundle.Read(path); err == nil {
		t.Errorf("a pipe has the content %q", content)
	}
}

// Sandboxes get certificates of the host, and nothing else that is beside them.
func TestHostCertificates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bundle")
	t.Setenv("SSL_CERT_FILE", path)
	var log bytes.Buffer
	h := &cabundle.Host{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	want := func(want []byte) {
		t.Helper()
		if got := h.Certificates(); !bytes.Equal(got, want) {
			t.Errorf("%d bytes, want %d: %s", len(got), len(want), log.String())
		}
	}
	want(nil)
	one, two := block("CERTIFICATE", 1), block("CERTIFICATE", 2)
	put(t, path, bytes.Join([][]byte{[]byte("# of a distribution\n"), one, block("PRIVATE KEY", 3), two}, nil))
	want(append(bytes.Clone(one), two...))
	put(t, path, two)
	want(two)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want(two)
	if log.Len() > 0 {
		t.Error(log.String())
	}
	put(t, path, bytes.Repeat(one, 2000))
	want(bytes.Repeat(one, cabundle.MaxHostBytes/len(one)))
	if !strings.Contains(log.String(), "too many") {
		t.Error(log.String())
	}
}
