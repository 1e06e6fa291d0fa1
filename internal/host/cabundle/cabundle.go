// Package cabundle finds and reads the files of certificates of the authorities that a system trusts.
package cabundle

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Paths are the files of Debian, Alpine and Arch, of Fedora, of SUSE, and of others.
var Paths = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

const (
	// MaxBytes is how much of a file is read; those of distributions have 250 KiB.
	MaxBytes = 4 << 20
	// MaxHostBytes is how much of the host's file sandboxes get.
	MaxHostBytes = 1 << 20
)

// ID tells one content of a file from the next.
type ID struct {
	inode uint64
	mtime unix.Timespec
}

// Find returns the first path that leads to a regular file; "": none does.
func Find(paths ...string) (path string, id ID) {
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return path, ID{st.Ino, st.Mtim}
		}
	}
	return "", ID{}
}

// end is the beginning of the last line of a certificate.
const end = "-----END "

// Read returns the content of a regular file, and what it is. cut: it has more than MaxBytes, and what is returned ends with a whole certificate.
func Read(path string) (content []byte, info fs.FileInfo, cut bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // it may be another file since Find
	if err != nil {
		return nil, nil, false, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, nil, false, err
	}
	if !info.Mode().IsRegular() { // a pipe without a writer has no end
		return nil, nil, false, &fs.PathError{Op: "read", Path: path, Err: errors.New("it is no regular file")}
	}
	content, err = io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil || len(content) <= MaxBytes {
		return content, info, false, err
	}
	content = content[:bytes.LastIndexByte(content[:MaxBytes], '\n')+1]
	last := max(bytes.LastIndex(content, []byte(end)), 0)
	return content[:last+bytes.IndexByte(content[last:], '\n')+1], info, true, nil
}

// Host are the certificates that this host trusts, as its programs find them: in the file that SSL_CERT_FILE names, or in that of the distribution. The zero
// value with a Logger is ready for use.
type Host struct {
	Logger *slog.Logger

	mu   sync.Mutex
	path string
	id   ID
	pem  []byte
}

// Certificates returns them in PEM, at most MaxHostBytes, and nothing else that the file has. They are read again when the file has changed. If the host
// has no file, or while it cannot be read, they are the last ones, or none. Callers do not change them.
func (h *Host) Certificates() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	paths := Paths
	if path := os.Getenv("SSL_CERT_FILE"); path != "" {
		paths = []string{path}
	}
	path, id := Find(paths...)
	if path == "" || path == h.path && id == h.id {
		return h.pem
	}
	h.path, h.id = path, id
	content, _, cut, err := Read(path)
	if err != nil {
		h.Logger.Warn("the certificates that the host trusts cannot be read: sandboxes keep the last ones", "path", path, "err", err)
		return h.pem
	}
	var kept []byte
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		one := pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		if len(kept)+len(one) > MaxHostBytes {
			cut = true
			break
		}
		kept = append(kept, one...)
	}
	if cut {
		h.Logger.Warn("sandboxes get only a part of the certificates that the host trusts: they are too many", "path", path, "max_bytes", MaxHostBytes)
	}
	h.pem = kept
	return h.pem
}
