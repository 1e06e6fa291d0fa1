package recordfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/containerd/errdefs"
)

// kind is what a frame holds.
type kind string

const (
	kindSandbox kind = "AGBS"
	kindExec    kind = "AGBE"
)

const (
	// version of the payloads. One that an older daemon must not read as its own has a higher one.
	version = 1
	// headerBytes: kind, version, length, checksum.
	headerBytes = 16
	sumOffset   = 12
	// maxPayload is far above the 4 MiB of one RPC, which bounds what is in a record.
	maxPayload = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is one record as it is in a file.
type frame struct {
	version uint32
	payload []byte
}

// newer reports whether only a later release knows what the payload means.
func (f frame) newer() bool { return f.version > version }

func (f frame) size() int64 { return headerBytes + int64(len(f.payload)) }

// encodeFrame puts a header before payload. Errors: ErrInvalidArgument when that is too large.
func encodeFrame(k kind, f frame) ([]byte, error) {
	if len(f.payload) > maxPayload {
		return nil, fmt.Errorf("record of %d bytes: %w", len(f.payload), errdefs.ErrInvalidArgument)
	}
	b := make([]byte, 0, f.size())
	b = append(b, k...)
	b = binary.BigEndian.AppendUint32(b, f.version)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.payload)))
	b = binary.BigEndian.AppendUint32(b, checksum(b, f.payload))
	return append(b, f.payload...), nil
}

// checksum covers the header before it, too: a length that is wrong is no length.
func checksum(header, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(header[:sumOffset], castagnoli), castagnoli, payload)
}

// readFrame reads the next frame of r, in which left bytes are left. Errors: io.EOF when nothing is left; ErrDataLoss for
// what is not a whole frame of this kind; otherwise that of r.
func readFrame(r io.Reader, left int64, k kind) (frame, error) {
	if left == 0 {
		return frame{}, io.EOF
	}
	header := make([]byte, headerBytes)
	if err := readFull(r, left, header); err != nil {
		return frame{}, err
	}
	n := int64(binary.BigEndian.Uint32(header[8:]))
	if string(header[:4]) != string(k) || n > maxPayload {
		return frame{}, fmt.Errorf("no header of a record: %w", errdefs.ErrDataLoss)
	}
	if n > left-headerBytes { // asked before the memory is
		return frame{}, torn(n, left-headerBytes)
	}
	f := frame{version: binary.BigEndian.Uint32(header[4:]), payload: make([]byte, n)}
	if err := readFull(r, left-headerBytes, f.payload); err != nil {
		return frame{}, err
	}
	switch {
	case binary.BigEndian.Uint32(header[sumOffset:]) != checksum(header, f.payload):
		return frame{}, fmt.Errorf("the checksum of a record is wrong: %w", errdefs.ErrDataLoss)
	case f.version == 0:
		return frame{}, fmt.Errorf("a record has no version: %w", errdefs.ErrDataLoss)
	}
	return f, nil
}

func readFull(r io.Reader, left int64, b []byte) error {
	if int64(len(b)) > left {
		return torn(int64(len(b)), left)
	}
	n, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return torn(int64(len(b)), int64(n))
	}
	return err
}

func torn(want, have int64) error {
	return fmt.Errorf("a record ends after %d of %d bytes: %w", have, want, errdefs.ErrDataLoss)
}

// scan calls fn with each frame of r, which has size bytes, and where it begins, and returns where the last good one
// ends. Errors: ErrDataLoss when there is something behind that; that of fn; that of r.
func scan(r io.Reader, size int64, k kind, fn func(offset int64, f frame) error) (good int64, err error) {
	for {
		f, err := readFrame(r, size-good, k)
		if errors.Is(err, io.EOF) {
			return good, nil
		}
		if err != nil {
			return good, err
		}
		if err := fn(good, f); err != nil {
			return good, err
		}
		good += f.size()
	}
}

// endMark is the last frame of a whole file, an empty one that the next append overwrites. A file that was cut where a frame ends
// shows so that there was more.
var endMark = func() []byte {
	b, _ := encodeFrame("AGBZ", frame{version: version}) // it is not too large
	return b
}()

// errNoEnd: bytes behind the last frame are lost, and may have been another frame.
var errNoEnd = fmt.Errorf("the end of the file is missing: %w", errdefs.ErrDataLoss)

// marked reports whether f, which has size bytes, ends with the mark, and how many bytes are before that.
func marked(f io.ReaderAt, size int64) (frames int64, whole bool, err error) {
	last := make([]byte, headerBytes)
	if size < headerBytes {
		return size, false, nil
	}
	if _, err := f.ReadAt(last, size-headerBytes); err != nil {
		return 0, false, err
	}
	if !bytes.Equal(last, endMark) {
		return size, false, nil
	}
	return size - headerBytes, true, nil
}
