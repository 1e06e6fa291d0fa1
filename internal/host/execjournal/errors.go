package execjournal

import (
	"errors"
	"fmt"
	"strings"
)

// ErrMalformed marks content that is not a valid file of this package: not a regular file, too large, not decodable, out of
// range, or of an unsupported newer version. It never marks an I/O error.
var ErrMalformed = errors.New("malformed")

// tooOld replaces an old shim's error text for the user.
const tooOld = "the sandbox was made by an older release of agbox and can't do this: recreate it with agbox apply --replace"

// unsupported is the error by which a shim of any release refuses an unsupported version.
func unsupported(version int) error {
	return fmt.Errorf("%w: request version %d is not supported", ErrMalformed, version)
}

// TooOld reports whether j is the refusal by a shim that is older than the request. A container keeps the shim it was created
// with, so only a new container helps; a resume does not create one.
func TooOld(j Journal) bool {
	before, after, _ := strings.Cut(unsupported(0).Error(), "0")
	return j.State == StateEnded && j.ErrorCode == ErrorStartFailed &&
		strings.HasPrefix(j.Error, before) && strings.HasSuffix(j.Error, after)
}

// The types below satisfy containerd/errdefs (IsInvalidArgument, IsNotFound, IsUnavailable, IsFailedPrecondition) by marker
// methods, so that this package, which is linked into the shim, does not depend on errdefs.

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
