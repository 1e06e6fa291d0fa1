package backup

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"
)

// Write writes one backup file to w. database has h.DatabaseBytes bytes. logs adds the files of the log part; it is called
// if h.WithLogs. A file that Write did not finish is refused by Open.
func Write(w io.Writer, h Header, database io.Reader, logs func(*Logs) error) error {
	head, err := h.encode()
	if err != nil {
		return err
	}
	sum := sha256.New()
	both := io.MultiWriter(w, sum)
	if _, err := both.Write(head); err != nil {
		return err
	}
	if _, err := io.CopyN(both, database, h.DatabaseBytes); err != nil {
		return fmt.Errorf("write the database into the backup: %w", err)
	}
	if h.WithLogs {
		if err := writeLogs(both, logs); err != nil {
			return err
		}
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// Logs takes the files of the log part.
type Logs struct{ tar *tar.Writer }

func writeLogs(w io.Writer, fill func(*Logs) error) error {
	l := &Logs{tar.NewWriter(w)}
	if err := fill(l); err != nil {
		return err
	}
	if err := l.tar.Close(); err != nil {
		return fmt.Errorf("write the logs into the backup: %w", err)
	}
	return nil
}

// Log is one file of the log part.
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
	err := l.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: int64(file.Mode & 0o777), ModTime: file.Modified, Size: file.Bytes, Format: tar.FormatPAX,
	})
	if err != nil {
		return fmt.Errorf("write %s into the backup: %w", name, err)
	}
	n, err := io.CopyN(l.tar, r, file.Bytes)
	if errors.Is(err, io.EOF) {
		_, err = io.CopyN(l.tar, zeros{}, file.Bytes-n)
	}
	if err != nil {
		return fmt.Errorf("write %s into the backup: %w", name, err)
	}
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
