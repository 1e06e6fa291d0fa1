package backup

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/containerd/errdefs"
)

const (
	magic      = "agbox backup\r\n\x1a\n" // what a transfer as text would change is in it
	version    = 1
	flagLogs   = 1
	headerSize = 88
	uuidSize   = 36
	sumSize    = 32
)

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Header says what a backup is of.
type Header struct {
	// Schema is the schema version of the database.
	Schema uint64
	// Created is when the copy of the database was made.
	Created time.Time
	// DatabaseBytes is the size of the database.
	DatabaseBytes int64
	// Instance is the UUID of the store.
	Instance string
	// WithLogs: a log part follows the database.
	WithLogs bool
}

// encode returns the bytes of h. Errors: ErrInvalidArgument.
func (h Header) encode() ([]byte, error) {
	if !uuidPattern.MatchString(h.Instance) || h.DatabaseBytes <= 0 {
		return nil, fmt.Errorf("header of a backup of %d bytes of store %q: %w", h.DatabaseBytes, h.Instance, errdefs.ErrInvalidArgument)
	}
	var flags uint32
	if h.WithLogs {
		flags = flagLogs
	}
	b := make([]byte, 0, headerSize)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint32(b, flags)
	b = binary.BigEndian.AppendUint64(b, h.Schema)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Created.UnixNano()))
	b = binary.BigEndian.AppendUint64(b, uint64(h.DatabaseBytes))
	b = append(b, h.Instance...)
	return append(b, 0, 0, 0, 0), nil
}

// checkMagic tells other files, and backups of newer programs, from ours.
func checkMagic(b []byte) error {
	if !bytes.HasPrefix(b, []byte(magic)) {
		return fmt.Errorf("it is not a backup of agbox: %w", errdefs.ErrInvalidArgument)
	}
	if v := binary.BigEndian.Uint32(b[16:]); v != version {
		return fmt.Errorf("its format version is %d and this program knows %d; a newer agbox wrote it, or it is damaged: %w",
			v, version, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// decodeHeader reads what checkMagic has passed and whose checksum is right.
func decodeHeader(b []byte) (Header, error) {
	flags, size := binary.BigEndian.Uint32(b[20:]), binary.BigEndian.Uint64(b[40:])
	h := Header{
		Schema: binary.BigEndian.Uint64(b[24:]), Created: time.Unix(0, int64(binary.BigEndian.Uint64(b[32:]))).UTC(),
		DatabaseBytes: int64(min(size, math.MaxInt64)), Instance: string(b[48 : 48+uuidSize]), WithLogs: flags&flagLogs != 0,
	}
	if flags&^flagLogs != 0 || !uuidPattern.MatchString(h.Instance) || h.DatabaseBytes == 0 {
		return Header{}, damaged("its header makes no sense")
	}
	return h, nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errdefs.ErrDataLoss)
}
