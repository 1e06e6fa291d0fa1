// Package channel is the protocol between agboxd and PID 1 of a sandbox: one Unix socket of the daemon, and on it one connection for
// each stream, so that the kernel keeps the flow control of one stream apart from all others.
//
// PID 1 dials every connection, since the daemon accepts only the main process of the container, and hands it to the process that serves
// it: the supervisor of an exec, or a worker for files and ports. The first frame on a connection is Hello. A Hello without a token makes
// it the control connection, on which the daemon sends an Open for each stream that it wants; PID 1 answers each with a new connection
// whose Hello has the token, or with Refuse.
//
// The channel is a fast path. Records, fences, journals and logs never depend on it, and whoever loses a connection continues by offset.
package channel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/protobuf/encoding/protowire"
)

// SocketName is the name of the daemon's socket below the exec directory of a sandbox's ctl mount.
const SocketName = "channel.sock"

// Version is that of this protocol. A peer with another major version is refused; there is one so far.
const Version = 1

const (
	// MaxData is the largest Data of a frame, in bytes.
	MaxData = 64 << 10
	// MaxFrame is the largest encoded frame. Whoever sends a larger one is disconnected.
	MaxFrame = MaxData + 4<<10
	// StdinWindow is how many bytes of standard input the daemon may send beyond the acknowledged offset.
	StdinWindow = 512 << 10
)

// Kind says what a frame is.
type Kind uint32

// The kinds of frames, with the fields that they use.
const (
	// Hello (shim): Number is the version, Text the token of the Open that it answers; empty on the control connection.
	Hello Kind = 1 + iota
	// Open (daemon, control): Text is the token, Exec the exec whose supervisor serves the stream; without an Exec a worker does, as User.
	Open
	// Refuse (shim, control): Text is the token, Data one sentence.
	Refuse
	// Request (daemon, first on a stream): Data is a request in JSON.
	Request
	// Result (shim): Data is the answer in JSON. It ends a request that sends no data afterwards.
	Result
	// Failure (shim): Text is a reason of the API, Data one sentence.
	Failure
	// Data (both): Data are bytes of a file, at Offset.
	Data
	// End (both): the sender sends no more Data.
	End
	// Attach (daemon, first on the stream of an exec): Stream is not 0 for the writer of standard input, Live asks for output beyond the limit
	// of the logs, Columns and Rows are the size of the client's terminal.
	Attach
	// Attached (supervisor): Offset is the next offset of standard input, and the command has taken all bytes before Number; Stream is not 0 once
	// it takes no more. Limit is that of the logs, 0 for none, Columns is not 0 for a terminal.
	Attached
	// Stdin (daemon): Data at Offset.
	Stdin
	// StdinEnd (daemon): standard input ends at Offset.
	StdinEnd
	// StdinAck (supervisor): the command has taken all bytes before Offset; Stream is not 0 once it takes no more.
	StdinAck
	// TakenOver (supervisor): another connection writes standard input.
	TakenOver
	// Resize (daemon): Columns and Rows.
	Resize
	// Signal (daemon): Number.
	Signal
	// Output (supervisor): Data of Stream at Offset, beyond the limit of the log.
	Output
	// Gap (supervisor): Number bytes of Stream at Offset were dropped.
	Gap
)

// Streams of output.
const (
	Stdout = 1
	Stderr = 2
)

// Frame is one message: the protobuf message
//
//	message Frame {
//	  uint32 kind = 1;
//	  int64 offset = 2;
//	  bytes data = 3;
//	  uint32 stream = 4;
//	  int64 number = 5;
//	  string text = 6;
//	  string exec = 7;
//	  string user = 8;
//	  uint32 columns = 9;
//	  uint32 rows = 10;
//	  int64 limit = 11;
//	  bool live = 12;
//	}
//
// behind its length as a big-endian uint32. It is encoded by hand: registering generated messages would cost each process in a sandbox
// memory and time at its start.
type Frame struct {
	Kind          Kind
	Offset        int64
	Data          []byte
	Stream        uint32
	Number        int64
	Text          string
	Exec          string
	User          string
	Columns, Rows uint32
	Limit         int64
	Live          bool
}

// ErrFrame is a frame that is too large or does not decode.
var ErrFrame = errors.New("bad frame")

// Append appends the encoded frame to buf.
func (f *Frame) Append(buf []byte) []byte { return append(f.appendHead(buf), f.Data...) }

// appendHead appends the encoded frame up to Data, which is its last field.
func (f *Frame) appendHead(buf []byte) []byte {
	start := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	number := func(field protowire.Number, v uint64) {
		if v != 0 {
			buf = protowire.AppendVarint(protowire.AppendTag(buf, field, protowire.VarintType), v)
		}
	}
	text := func(field protowire.Number, s string) {
		if s != "" {
			buf = protowire.AppendString(protowire.AppendTag(buf, field, protowire.BytesType), s)
		}
	}
	number(1, uint64(f.Kind))
	number(2, uint64(f.Offset))
	number(4, uint64(f.Stream))
	number(5, uint64(f.Number))
	text(6, f.Text)
	text(7, f.Exec)
	text(8, f.User)
	number(9, uint64(f.Columns))
	number(10, uint64(f.Rows))
	number(11, uint64(f.Limit))
	if f.Live {
		number(12, 1)
	}
	if len(f.Data) > 0 {
		buf = protowire.AppendVarint(protowire.AppendTag(buf, 3, protowire.BytesType), uint64(len(f.Data)))
	}
	binary.BigEndian.PutUint32(buf[start:], uint32(len(buf)-start-4+len(f.Data)))
	return buf
}

// Decode decodes a frame without its length. Data aliases buf. Unknown fields are skipped. Errors: ErrFrame.
func Decode(buf []byte) (f Frame, err error) {
	for len(buf) > 0 {
		field, kind, n := protowire.ConsumeTag(buf)
		if n < 0 {
			return Frame{}, ErrFrame
		}
		buf = buf[n:]
		switch kind {
		case protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(buf)
			if n >= 0 {
				f.setNumber(field, v)
			}
		case protowire.BytesType:
			var v []byte
			v, n = protowire.ConsumeBytes(buf)
			if n >= 0 {
				f.setBytes(field, v)
			}
		default:
			n = protowire.ConsumeFieldValue(field, kind, buf)
		}
		if n < 0 {
			return Frame{}, ErrFrame
		}
		buf = buf[n:]
	}
	return f, nil
}

func (f *Frame) setNumber(field protowire.Number, v uint64) {
	switch field {
	case 1:
		f.Kind = Kind(v)
	case 2:
		f.Offset = int64(v)
	case 4:
		f.Stream = uint32(v)
	case 5:
		f.Number = int64(v)
	case 9:
		f.Columns = uint32(v)
	case 10:
		f.Rows = uint32(v)
	case 11:
		f.Limit = int64(v)
	case 12:
		f.Live = v != 0
	}
}

func (f *Frame) setBytes(field protowire.Number, v []byte) {
	switch field {
	case 3:
		f.Data = v
	case 6:
		f.Text = string(v)
	case 7:
		f.Exec = string(v)
	case 8:
		f.User = string(v)
	}
}

// Reader reads frames.
type Reader struct {
	r   io.Reader
	buf []byte
}

// NewReader returns a Reader of r. It reads exactly the frames that it returns, and nothing behind them.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Read returns the next frame; its Data is valid until the next Read. Errors: io.EOF between two frames, io.ErrUnexpectedEOF within one,
// ErrFrame, or those of the reader.
func (r *Reader) Read() (Frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return Frame{}, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > MaxFrame {
		return Frame{}, fmt.Errorf("%w: %d bytes, the largest has %d", ErrFrame, n, MaxFrame)
	}
	if n > cap(r.buf) {
		r.buf = make([]byte, max(n, 4<<10))
	}
	r.buf = r.buf[:n]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return Decode(r.buf)
}

// smallData is the size up to which Write copies Data, in bytes.
const smallData = 4 << 10

// Write writes one frame, to a Unix socket with one call of the kernel.
func Write(w io.Writer, f Frame) error {
	if len(f.Data) <= smallData {
		_, err := w.Write(f.Append(make([]byte, 0, len(f.Data)+64)))
		return err
	}
	parts := net.Buffers{f.appendHead(make([]byte, 0, 64)), f.Data}
	_, err := parts.WriteTo(w)
	return err
}

// Cut decodes the first frame of buf and returns its size in bytes; 0 if buf has no whole frame. Data aliases buf. Errors: ErrFrame.
func Cut(buf []byte) (f Frame, size int, err error) {
	if len(buf) < 4 {
		return Frame{}, 0, nil
	}
	n := int(binary.BigEndian.Uint32(buf))
	if n > MaxFrame {
		return Frame{}, 0, ErrFrame
	}
	if len(buf) < 4+n {
		return Frame{}, 0, nil
	}
	f, err = Decode(buf[4 : 4+n])
	return f, 4 + n, err
}
