package channel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Op is an operation of a worker on files or ports.
type Op string

// The operations of a worker, with what follows the first frame, Request, whose Data is a Call in JSON. Instead of each answer, and between
// any two frames of the worker, a Failure can come; it is the last frame. A worker that loses the connection undoes an unfinished WriteFile.
const (
	// Stat, MakeDir, Remove and Move: the worker answers with a Result, an Entry in JSON; that of Remove is empty.
	Stat    Op = "stat"
	MakeDir Op = "mkdir"
	Remove  Op = "remove"
	Move    Op = "move"
	// List: Data frames, each a Page in JSON, then End.
	List Op = "list"
	// Read: a Result, an Entry in JSON; the bytes of the file in Data frames; End.
	Read Op = "read"
	// WriteFile: an empty Result once the worker accepts the content; then the daemon sends Data frames and End; then a Result, an Entry.
	WriteFile Op = "write"
	// Watch: an empty Result, then Data frames, each a []Change in JSON, until the daemon closes the connection.
	Watch Op = "watch"
	// Tar: the archive in Data frames; a frame whose Text is not empty says what was skipped and has no Data. End.
	Tar Op = "tar"
	// Untar: an empty Result; then the daemon sends Data frames and End; then a Result, an Unpacked.
	Untar Op = "untar"
	// Dial: an empty Result; then both sides send bytes without frames, and shutdown(2) for the end of theirs.
	Dial Op = "dial"
)

// Call is the Data of a Request. Which fields an operation uses is in the comments of agbox.v1.FileService.
type Call struct {
	Op         Op      `json:"op"`
	Path       string  `json:"path,omitempty"`
	To         string  `json:"to,omitempty"`
	Follow     bool    `json:"follow,omitempty"`
	Depth      int     `json:"depth,omitempty"`
	After      string  `json:"after,omitempty"`
	Limit      int64   `json:"limit,omitempty"` // of List: entries, of Read: bytes; 0: all
	Offset     *int64  `json:"offset,omitempty"`
	Mode       *uint32 `json:"mode,omitempty"`
	Modified   *int64  `json:"modified,omitempty"` // Unix nanoseconds
	Parents    bool    `json:"parents,omitempty"`
	Exclusive  bool    `json:"exclusive,omitempty"`
	InPlace    bool    `json:"in_place,omitempty"`
	Version    string  `json:"version,omitempty"`
	Recursive  bool    `json:"recursive,omitempty"`
	KeepOwners bool    `json:"keep_owners,omitempty"`
	Port       uint16  `json:"port,omitempty"` // of Dial; 0: the Unix socket Path
}

// Types of files, as in find(1).
const (
	Regular   = "f"
	Directory = "d"
	Symlink   = "l"
	Other     = "o"
)

// Entry describes a file.
type Entry struct {
	Name     string `json:"name"` // U+FFFD for each byte that is not UTF-8; then Raw is set
	Raw      []byte `json:"raw,omitempty"`
	Path     string `json:"path"`
	Type     string `json:"type"`
	Size     int64  `json:"size,omitempty"`
	Mode     uint32 `json:"mode,omitempty"` // the 12 bits of chmod(2)
	UID      uint32 `json:"uid,omitempty"`
	GID      uint32 `json:"gid,omitempty"`
	Owner    string `json:"owner,omitempty"`
	Group    string `json:"group,omitempty"`
	Modified int64  `json:"modified"` // Unix nanoseconds
	Target   string `json:"target,omitempty"`
	Version  string `json:"version"`
}

// Page is a part of a listing.
type Page struct {
	Entries []Entry `json:"entries"`
	More    bool    `json:"more,omitempty"` // in the last page: the limit was reached
}

// Kinds of changes.
const (
	Created    = "created"
	Written    = "written"
	Removed    = "removed"
	Renamed    = "renamed"
	Attributes = "attributes"
	Overflow   = "overflow"
)

// Change is one change below a watched directory.
type Change struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"` // relative to the watched directory
	Old  string `json:"old,omitempty"`  // of Renamed
}

// Unpacked is the result of Untar.
type Unpacked struct {
	Entries int64    `json:"entries"`
	Bytes   int64    `json:"bytes"`
	Skipped []string `json:"skipped,omitempty"`
}

// Reasons of a Failure, as in the API.
const (
	FileNotFound   = "FILE_NOT_FOUND"
	FileExists     = "FILE_EXISTS"
	FilePermission = "FILE_PERMISSION"
	FileType       = "FILE_TYPE"
	FileNotEmpty   = "FILE_NOT_EMPTY"
	FileBusy       = "FILE_BUSY"
	FileNoSpace    = "FILE_NO_SPACE"
	FileChanged    = "FILE_CHANGED"
	FileOffset     = "FILE_OFFSET"
	FileIO         = "FILE_IO"
	ArchiveInvalid = "ARCHIVE_INVALID"
	WatchLimit     = "WATCH_LIMIT"
	PortRefused    = "PORT_REFUSED"
	UserUnknown    = "USER_UNKNOWN"
	BadCall        = "BAD_CALL" // the worker does not know the operation: it is older than the daemon
)

// WriteJSON writes a frame whose Data is v in JSON; nil is no Data.
func WriteJSON(w io.Writer, kind Kind, v any) error {
	if v == nil {
		return Write(w, Frame{Kind: kind})
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(data) > MaxData {
		return fmt.Errorf("%w: %d bytes of JSON", ErrFrame, len(data))
	}
	return Write(w, Frame{Kind: kind, Data: data})
}

// Failed is a Failure.
type Failed struct{ Reason, Message string }

// Error implements error.
func (f *Failed) Error() string { return f.Message }

// ReadAnswer reads the next frame, which must be of the given kind, and decodes its Data into v unless that is nil. Errors besides those of
// Reader.Read: *Failed for a Failure.
func (r *Reader) ReadAnswer(kind Kind, v any) error {
	f, err := r.Read()
	switch {
	case err != nil:
		return err
	case f.Kind == Failure:
		return &Failed{Reason: f.Text, Message: string(f.Data)}
	case f.Kind != kind:
		return fmt.Errorf("%w: kind %d instead of %d", ErrFrame, f.Kind, kind)
	case v == nil || len(f.Data) == 0:
		return nil
	}
	if err := json.Unmarshal(f.Data, v); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}

// DataReader reads the Data frames of r up to End as a stream. Errors besides those of Reader.Read: *Failed for a Failure, and
// io.ErrUnexpectedEOF if the connection ends before End.
type DataReader struct {
	r *Reader
	// Told is called for a frame with a Text; nil: it is ignored.
	Told func(text string)
	rest []byte
	err  error
}

// NewDataReader returns a DataReader.
func NewDataReader(r *Reader) *DataReader { return &DataReader{r: r} }

// Next returns the Data of the next frame that has some, valid until the next call. After End it returns io.EOF.
func (d *DataReader) Next() ([]byte, error) {
	for d.err == nil {
		f, err := d.r.Read()
		switch {
		case errors.Is(err, io.EOF):
			d.err = io.ErrUnexpectedEOF
		case err != nil:
			d.err = err
		case f.Kind == Failure:
			d.err = &Failed{Reason: f.Text, Message: string(f.Data)}
		case f.Kind == End:
			d.err = io.EOF
		case f.Kind != Data:
			d.err = fmt.Errorf("%w: kind %d in a stream of data", ErrFrame, f.Kind)
		case len(f.Data) > 0:
			return f.Data, nil
		case f.Text != "" && d.Told != nil:
			d.Told(f.Text)
		}
	}
	return nil, d.err
}

// Read implements io.Reader.
func (d *DataReader) Read(p []byte) (int, error) {
	if len(d.rest) == 0 {
		var err error
		if d.rest, err = d.Next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// DataWriter writes each slice as Data frames.
type DataWriter struct{ w io.Writer }

// NewDataWriter returns a DataWriter.
func NewDataWriter(w io.Writer) DataWriter { return DataWriter{w} }

// Write implements io.Writer.
func (d DataWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		piece := p[n:min(n+MaxData, len(p))]
		if err := Write(d.w, Frame{Kind: Data, Data: piece}); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}
