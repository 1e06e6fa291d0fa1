package fakehost

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// inbox hands a command's inbox over to its standard input as it grows.
type inbox struct {
	file, closed string
	grown        chan struct{} // of size 1: look again
	gone         chan struct{} // closed when the command has ended
}

// openInbox returns the end that the command reads from, which is to be closed once the command has it.
func (b *box) openInbox(req execjournal.Request) (*inbox, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	in := &inbox{
		file: filepath.Join(b.ctl, execjournal.InboxName(req.ExecID)), closed: filepath.Join(b.ctl, execjournal.ClosedName(req.ExecID)),
		grown: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	b.work.Go(func() {
		defer func() { _ = w.Close() }() // the command's standard input ends
		in.run(w)
	})
	return in, r, nil
}

func (in *inbox) look() {
	select {
	case in.grown <- struct{}{}:
	default:
	}
}

// run ends with the command, with its reading, or at the end of an inbox that was closed.
func (in *inbox) run(w io.Writer) {
	for offset := int64(0); ; {
		_, err := os.Stat(in.closed)
		last := err == nil
		n, err := in.copy(w, offset)
		offset += n
		if err != nil || last {
			return
		}
		select {
		case <-in.grown:
		case <-in.gone:
			return
		}
	}
}

func (in *inbox) copy(w io.Writer, offset int64) (int64, error) {
	f, err := os.Open(in.file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return 0, err
	}
	return io.Copy(w, f)
}
