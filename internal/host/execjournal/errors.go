package execjournal

import (
	"errors"
	"fmt"
	"strings"
)

// ErrMalformed marks content that is no valid file of this package: not regular, too large, does not decode, out of
// range, newer than we know. It never marks an I/O error.
var ErrMalformed = errors.New("malformed")

// tooOld is what people read in the place of an old shim's words.
const tooOld = "the sandbox was made by an older release of agbox and can't do this: recreate it with agbox apply --replace"

// unsupported is how a shim of any release refuses a version that it does not know.
func unsupported(version int) error {
	return fmt.Errorf("%w: request version %d is not supported", ErrMalformed, version)
}

// TooOld tells whether j is the refusal of a shim that is older than the request. A container keeps the shim it was made
// with, so only a new container helps; a resume does not make one.
func TooOld(j Journal) bool {
	before, after, _ := strings.Cut(unsupported(0).Error(), "0")
	return j.State == StateEnded && j.ErrorCode == ErrorStartFailed &&
		strings.HasPrefix(j.Error, before) && strings.HasSuffix(j.Error, after)
}

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
