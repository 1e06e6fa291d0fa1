package execjournal

import (
	"errors"
	"fmt"
)

// ErrMalformed marks content that is no valid file of this package: not regular, too large, does not decode, out of
// range, newer than we know. It never marks an I/O error.
var ErrMalformed = errors.New("malformed")

// The types below answer containerd/errdefs (IsInvalidArgument, IsNotFound, IsUnavailable, IsFailedPrecondition) by its
// marker methods, so that this leaf, which is linked into the shim, needs no dependency for them.

type invalidError struct{ error }

func (invalidError) InvalidParameter() {}
func (e invalidError) Unwrap() error   { return e.error }

type notFoundError struct{ error }

func (notFoundError) NotFound()       {}
func (e notFoundError) Unwrap() error { return e.error }

type unavailableError struct{ error }

func (unavailableError) Unavailable()    {}
func (e unavailableError) Unwrap() error { return e.error }

type refusedError struct{ error }

func (refusedError) FailedPrecondition() {}
func (e refusedError) Unwrap() error     { return e.error }

func invalidf(format string, a ...any) error     { return invalidError{fmt.Errorf(format, a...)} }
func notFoundf(format string, a ...any) error    { return notFoundError{fmt.Errorf(format, a...)} }
func unavailablef(format string, a ...any) error { return unavailableError{fmt.Errorf(format, a...)} }
func refusedf(format string, a ...any) error     { return refusedError{fmt.Errorf(format, a...)} }
