package backup

import (
	"archive/tar"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// Names in the archive, and the format number in its first file. Format 1 was not an archive; it was never released.
const (
	infoName     = "agbox-backup.json"
	databaseName = "ids.db"
	logPrefix    = "logs/"
	sumName      = "SHA-256"

	format       = 2
	maxInfo      = 4096
	unarchived   = "agbox backup\r\n"
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
	start := make([]byte, len(unarchived))
	if _, err := f.ReadAt(start, 0); err == nil && string(start) == unarchived {
		return h, fmt.Errorf("its format is 1, which no release had; restore it with the agboxd that wrote it, and make a new one: %w", errdefs.ErrFailedPrecondition)
	}
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
func trailer(sum []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	text := hex.EncodeToString(sum)
	if err := put(w, tar.Header{Name: sumName, Mode: 0o600, Size: int64(len(text))}, strings.NewReader(text)); err != nil {
		return nil, err
	}
	err := w.Close()
	return b.Bytes(), err
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errdefs.ErrDataLoss)
}
