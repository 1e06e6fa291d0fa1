package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/errdefs"
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
	_, err = w.Write(trailer(sum.Sum(nil)))
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

// Names in the archive, and the format number in its first file.
const (
	infoName     = "agbox-backup.json"
	databaseName = "ids.db"
	logPrefix    = "logs/"
	sumName      = "SHA-256"

	format       = 2
	maxInfo      = 4096
	trailerBytes = 4 * 512 // header and content of the checksum, and two zero blocks
)

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Header describes a backup.
type Header struct {
	// Schema is the schema version of the database.
	Schema uint64 `json:"schema"`
	// Created is the time at which the database was copied.
	Created time.Time `json:"created"`
	// Instance is the UUID of the store.
	Instance string `json:"instance"`
	// WithLogs reports whether logs follow the database.
	WithLogs bool `json:"with_logs"`
	// DatabaseBytes is the size of the database.
	DatabaseBytes int64 `json:"-"`
}

// info is the content of the first file, as JSON.
type info struct {
	Format int `json:"format"`
	Header
}

// encode returns the content of the first file. Errors: ErrInvalidArgument.
func (h Header) encode() ([]byte, error) {
	if !uuidPattern.MatchString(h.Instance) || h.DatabaseBytes <= 0 {
		return nil, fmt.Errorf("header of a backup of %d bytes of store %q: %w", h.DatabaseBytes, h.Instance, errdefs.ErrInvalidArgument)
	}
	return json.Marshal(info{format, h})
}

// readInfo reads the first file of an archive, before its checksum is verified. It refuses other files, and backups of other formats.
func readInfo(f io.ReaderAt, size int64) (h Header, err error) {
	files := tar.NewReader(io.NewSectionReader(f, 0, size))
	var i info
	head, err := files.Next()
	if err == nil && head.Name != infoName {
		err = fmt.Errorf("an archive that begins with %q", head.Name)
	}
	if err != nil {
		return h, fmt.Errorf("it is not a backup of agbox: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	err = json.NewDecoder(io.LimitReader(files, maxInfo)).Decode(&i)
	switch {
	case err != nil || !uuidPattern.MatchString(i.Instance):
		return h, damaged("%s in it can't be read (%v)", infoName, err)
	case i.Format != format:
		return h, fmt.Errorf("its format is %d and this program knows %d; a newer agbox wrote it, or it is damaged: %w", i.Format, format, errdefs.ErrFailedPrecondition)
	}
	return i.Header, nil
}

// put writes size bytes of r into an archive as one file.
func put(w *tar.Writer, head tar.Header, r io.Reader) error {
	head.Typeflag, head.Format = tar.TypeReg, tar.FormatPAX
	err := w.WriteHeader(&head)
	if err == nil {
		_, err = io.CopyN(w, r, head.Size)
	}
	if err != nil {
		return fmt.Errorf("write %s into the backup: %w", head.Name, err)
	}
	return nil
}

// trailer returns the last bytes of a backup file: the checksum of the bytes before, and the end of the archive.
func trailer(sum []byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	text := hex.EncodeToString(sum)
	_ = put(w, tar.Header{Name: sumName, Mode: 0o600, Size: int64(len(text))}, strings.NewReader(text)) // into memory, it never fails
	_ = w.Close()
	return b.Bytes()
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errdefs.ErrDataLoss)
}
