package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"io"
	"time"
)

// Write writes one backup file to w. database supplies h.DatabaseBytes bytes. logs adds the logs; Write calls it if h.WithLogs is set. Open
// refuses a file that Write did not complete.
func Write(w io.Writer, h Header, database io.Reader, logs func(*Logs) error) error {
	about, err := h.encode()
	if err != nil {
		return err
	}
	sum := sha256.New()
	files := tar.NewWriter(io.MultiWriter(w, sum))
	// With fractions of a second, tar would write another header first, and the file would not start with the name.
	at := h.Created.Truncate(time.Second)
	if err := put(files, tar.Header{Name: infoName, Mode: 0o600, ModTime: at, Size: int64(len(about))}, bytes.NewReader(about)); err != nil {
		return err
	}
	if err := put(files, tar.Header{Name: databaseName, Mode: 0o600, ModTime: at, Size: h.DatabaseBytes}, database); err != nil {
		return err
	}
	if h.WithLogs {
		if err := logs(&Logs{files}); err != nil {
			return err
		}
	}
	if err := files.Flush(); err != nil {
		return err
	}
	last, err := trailer(sum.Sum(nil))
	if err == nil {
		_, err = w.Write(last)
	}
	return err
}

// Logs writes the logs of a backup.
type Logs struct{ tar *tar.Writer }

// Log describes one log file.
type Log struct {
	// Sandbox is its directory and File its name.
	Sandbox, File string
	// Mode holds only permission bits.
	Mode     uint32
	Modified time.Time
	Bytes    int64
}

// Add writes file.Bytes bytes of r as one file. If the source has become shorter, Add fills up with zero bytes: processes of the sandbox
// can truncate it at any moment.
func (l *Logs) Add(file Log, r io.Reader) error {
	name := file.Sandbox + "/" + file.File
	if err := checkName(name); err != nil {
		return err
	}
	head := tar.Header{Name: logPrefix + name, Mode: int64(file.Mode & 0o777), ModTime: file.Modified, Size: file.Bytes}
	return put(l.tar, head, io.MultiReader(r, zeros{}))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
