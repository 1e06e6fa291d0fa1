package txlog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/containerd/errdefs"
)

const (
	version     = 1
	magic       = "AGL"
	headerBytes = 12
	// maxPayload exceeds any group of transactions that agboxd commits, and limits what a reader allocates.
	maxPayload = 256 << 20
)

// The kinds of frames; see the package comment.
const (
	kindSnapshot = 'P'
	kindData     = 'D'
	kindWhole    = 'Z'
	kindSegment  = 'S'
	kindTxn      = 'T'
	kindEnd      = 'E'
	kindClosed   = 'C'
	kindNext     = 'N'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Kind is the kind of an operation.
type Kind byte

// The kinds of operations. The numbers are part of the file format.
const (
	Put Kind = iota + 1
	Delete
	MakeBucket
	DropBucket
)

// Op is one change of a bucket. A Put creates a missing bucket; a Delete or DropBucket of a missing key or bucket does nothing.
type Op struct {
	Kind       Kind
	Bucket     string
	Key, Value []byte
}

// begin starts a frame: call begin, append the payload to the slice, call end.
func begin(b []byte, kind byte) ([]byte, int) {
	at := len(b)
	b = append(b, magic...)
	return append(b, kind, 0, 0, 0, 0, 0, 0, 0, 0), at
}

func end(b []byte, at int) []byte {
	binary.BigEndian.PutUint32(b[at+4:], uint32(len(b)-at-headerBytes))
	sum := crc32.Update(crc32.Checksum(b[at:at+8], castagnoli), castagnoli, b[at+headerBytes:])
	binary.BigEndian.PutUint32(b[at+8:], sum)
	return b
}

func appendBytes[T string | []byte](b []byte, data T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

func appendOp(b []byte, op Op) []byte {
	b = appendBytes(append(b, byte(op.Kind)), op.Bucket)
	switch op.Kind {
	case Put:
		b = appendBytes(appendBytes(b, op.Key), op.Value)
	case Delete:
		b = appendBytes(b, op.Key)
	}
	return b
}

// head is the payload of the first frame of a file.
type head struct{ lineage, txid uint64 }

func appendHead(b []byte, kind byte, h head) []byte {
	b, at := begin(b, kind)
	b = binary.AppendUvarint(b, version)
	b = binary.BigEndian.AppendUint64(b, h.lineage)
	return end(binary.AppendUvarint(b, h.txid), at)
}

// mark is the payload of the last frame of a segment. Its size depends only on the boot ID, so that one mark can overwrite another.
type mark struct {
	txid uint64
	boot string
}

func appendMark(b []byte, kind byte, m mark) []byte {
	b, at := begin(b, kind)
	b = binary.BigEndian.AppendUint64(b, m.txid)
	return end(append(b, m.boot...), at)
}

// errDamaged is the class of all unreadable content. It does not cover the disk: failed reads are other errors.
var errDamaged = fmt.Errorf("damaged: %w", errdefs.ErrDataLoss)

func damaged(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, errDamaged)...)
}

// reader reads the frames of one file. What it returns is valid until the next call.
type reader struct {
	r    *bufio.Reader
	left int64 // unread bytes of the file
	buf  []byte
}

func newReader(r io.Reader, size int64) *reader {
	return &reader{r: bufio.NewReaderSize(r, 64<<10), left: size}
}

// next returns the next frame. Errors: io.EOF at the end of the file; errDamaged; the file's.
func (r *reader) next() (kind byte, payload []byte, err error) {
	if r.left == 0 {
		return 0, nil, io.EOF
	}
	var header [headerBytes]byte
	if err := r.read(header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(header[4:])
	switch {
	case string(header[:3]) != magic:
		return 0, nil, damaged("no frame begins %d bytes before the end", r.left+headerBytes)
	case length > maxPayload, int64(length) > r.left:
		return 0, nil, damaged("a frame of %d bytes, and %d are left", length, r.left)
	}
	if cap(r.buf) < int(length) {
		r.buf = make([]byte, length)
	}
	payload = r.buf[:length]
	if err := r.read(payload); err != nil {
		return 0, nil, err
	}
	sum := crc32.Update(crc32.Checksum(header[:8], castagnoli), castagnoli, payload)
	if sum != binary.BigEndian.Uint32(header[8:]) {
		return 0, nil, damaged("wrong checksum %d bytes before the end", r.left+int64(length))
	}
	return header[3], payload, nil
}

func (r *reader) read(b []byte) error {
	if int64(len(b)) > r.left {
		return damaged("it ends inside a frame")
	}
	n, err := io.ReadFull(r.r, b)
	r.left -= int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("it ends inside a frame")
	}
	return err
}

// cursor decodes a payload. After an error it returns only zero values.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) uint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.b, c.bad = nil, true
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) fixed() uint64 {
	if len(c.b) < 8 {
		c.b, c.bad = nil, true
		return 0
	}
	v := binary.BigEndian.Uint64(c.b)
	c.b = c.b[8:]
	return v
}

func (c *cursor) bytes() []byte {
	n := c.uint()
	if n > uint64(len(c.b)) {
		c.b, c.bad = nil, true
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) op() (op Op) {
	if len(c.b) == 0 {
		c.bad = true
		return op
	}
	op.Kind, c.b = Kind(c.b[0]), c.b[1:]
	op.Bucket = string(c.bytes())
	switch op.Kind {
	case Put:
		op.Key, op.Value = c.bytes(), c.bytes()
	case Delete:
		op.Key = c.bytes()
	case MakeBucket, DropBucket:
	default:
		c.bad = true
	}
	c.bad = c.bad || len(op.Bucket) == 0 || (op.Kind == Put || op.Kind == Delete) && len(op.Key) == 0
	return op
}

// ops returns the remaining operations of the payload.
func (c *cursor) ops() ([]Op, error) {
	var list []Op
	for len(c.b) > 0 && !c.bad {
		list = append(list, c.op())
	}
	if c.bad {
		return nil, damaged("an operation is not readable")
	}
	return list, nil
}

func readHead(payload []byte) (head, error) {
	c := cursor{b: payload}
	v := c.uint()
	h := head{lineage: c.fixed(), txid: c.uint()}
	switch {
	case c.bad || len(c.b) > 0:
		return head{}, damaged("its head is not readable")
	case v != version:
		return head{}, fmt.Errorf("its format has version %d, this agboxd knows %d: it is of a newer agboxd: %w", v, version, errdefs.ErrFailedPrecondition)
	}
	return h, nil
}

func readMark(payload []byte) (mark, error) {
	c := cursor{b: payload}
	m := mark{txid: c.fixed(), boot: string(c.b)}
	if c.bad {
		return mark{}, damaged("its end mark is not readable")
	}
	return m, nil
}
