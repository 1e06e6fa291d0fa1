// Package message makes text for people of errors and of what programs print.
package message

import (
	"errors"
	"strings"

	"github.com/containerd/errdefs"
)

// RecordsAway is the status of every sandbox and agent while records of others, and the instances that they name, may be missing.
const RecordsAway = "waiting until the records of the lost database are rebuilt"

// classes are the errors that only classify another one. Their texts are for programs.
var classes = []error{
	errdefs.ErrInvalidArgument, errdefs.ErrNotFound, errdefs.ErrAlreadyExists, errdefs.ErrPermissionDenied,
	errdefs.ErrFailedPrecondition, errdefs.ErrConflict, errdefs.ErrAborted, errdefs.ErrUnavailable, errdefs.ErrInternal,
	errdefs.ErrUnauthenticated, errdefs.ErrOutOfRange, errdefs.ErrUnknown,
}

// Of returns the text of an error for people: without the names of the classes at its end, one for each time it was wrapped.
func Of(err error) string {
	text := err.Error()
	for cut := true; cut; {
		cut = false
		for _, class := range classes {
			if rest, ok := strings.CutSuffix(text, ": "+class.Error()); ok && errors.Is(err, class) {
				text, cut = rest, true
			}
		}
	}
	return text
}
