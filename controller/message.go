package controller

import (
	"errors"
	"strings"

	"github.com/containerd/errdefs"
)

// classes are the errors that say what kind an error is, and nothing that a person wants to read.
var classes = []error{
	errdefs.ErrInvalidArgument, errdefs.ErrNotFound, errdefs.ErrAlreadyExists, errdefs.ErrPermissionDenied,
	errdefs.ErrFailedPrecondition, errdefs.ErrConflict, errdefs.ErrAborted, errdefs.ErrUnavailable, errdefs.ErrInternal,
	errdefs.ErrUnauthenticated, errdefs.ErrOutOfRange, errdefs.ErrUnknown,
}

// message is the text of an error for people: without the names of classes at its end, one for each time it was wrapped.
func message(err error) string {
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
