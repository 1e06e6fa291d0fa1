package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"io"
	"time"
)

// Write writes one backup file to w. database has h.DatabaseBytes bytes. logs adds the logs; it is called if h.WithLogs. A file
// that Write did not finish is refused by Open.
func Write(w io.Writer, h Header, database io.Reader, logs func(*Logs) error) error {
	about, err := h.encode()
	if err != nil {
		return err
	}
	sum := sha256.New()
	files := tar.NewWriter(io.MultiWriter(w, sum))
	at := h.Created.Truncate(time.Second) // parts of a second would put another header before the name that begins the file
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

// Logs takes the logs of a backup.
type Logs struct{ tar *tar.Writer }

// Log is one file of the logs.
type Log struct {
	// Sandbox and File are its directory and its name.
	Sandbox, File string
	// Mode has permission bits only.
	Mode     uint32
	Modified time.Time
	Bytes    int64
}

// Add writes one file, l.Bytes of r. A file that has become shorter is filled up with zero bytes: whoever may write there can
// cut it at any moment.
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
