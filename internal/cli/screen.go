package cli

import (
	"errors"
	"io"

	"github.com/agbox/agbox/internal/cli/termsafe"
)

// screens are the filters through which a command writes output of a sandbox to terminals.
type screens struct {
	raw  bool
	mode termsafe.Mode
	open []*termsafe.Writer
}

// before returns w with a filter in front of it if it is a terminal, and w itself for a file, a pipe, or under --raw.
func (s *screens) before(w io.Writer) io.Writer {
	if s.raw || !isTerminal(w) {
		return w
	}
	f := termsafe.New(w, s.mode)
	s.open = append(s.open, f)
	return f
}

// close writes the bytes that the filters have held back.
func (s *screens) close() error {
	var errs []error
	for _, f := range s.open {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
