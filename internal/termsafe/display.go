package termsafe

import (
	"io"
	"sync"
)

// Display is a standard stream on which a program prints text: it escapes as a Writer in Plain mode does, wherever the text comes from, and also
// in a file or a pipe, which may end on a terminal. It is safe for concurrent use. What is data, or was made for a terminal, goes around it;
// see Unfiltered.
type Display struct {
	to io.Writer

	mu   sync.Mutex
	text *Writer
}

// NewDisplay returns a display that prints to w.
func NewDisplay(w io.Writer) *Display { return &Display{to: w, text: New(w, Plain)} }

// Write implements io.Writer.
func (d *Display) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(p)
}

// Close writes what is held back of a text that ends within a character. It does not close the stream.
func (d *Display) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Close()
}

// Unfiltered returns the stream behind a display, and any other writer as it is. Use it for data that must not change, such as output of
// a sandbox behind a filter of its own, and for control sequences of the program; the rest of their text needs Text or Line then.
func Unfiltered(w io.Writer) io.Writer {
	if d, ok := w.(*Display); ok {
		return d.to
	}
	return w
}
