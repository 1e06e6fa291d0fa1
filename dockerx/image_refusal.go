package dockerx

import (
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// pullRefusal keeps the classes that mean something, and makes "the registry went wrong" one to try again.
func pullRefusal(err error) error {
	terminal := []func(error) bool{errdefs.IsNotFound, errdefs.IsInvalidArgument, errdefs.IsPermissionDenied}
	if isContextual(err) || slices.ContainsFunc(terminal, func(is func(error) bool) bool { return is(err) }) {
		return err
	}
	if errdefs.IsUnauthorized(err) {
		return reclass(err, errdefs.IsUnauthorized, errdefs.ErrPermissionDenied)
	}
	if class := registryRefusal(err.Error()); errdefs.IsInternal(err) && class != nil {
		return &classed{err: err, class: class}
	}
	return &classed{err: err, class: errdefs.ErrUnavailable}
}

// registryRefusal finds the registry's answer in the text of a pull that the engine answers with 500; nil when it is
// not there.
//
// Text is the only thing to go by: 20.10 answers 500 for a registry that wants a password, refuses it, or has no such
// manifest, just as for one that is down, and a create that tries such a pull for ever never tells its user. The
// words are error codes of the distribution protocol in their printed form, and the engine's own for a registry
// without credentials; each must be a whole part between colons, so that "connect: permission denied" is none of them.
func registryRefusal(text string) error {
	for part := range strings.SplitSeq(text, ": ") {
		switch part {
		case "unauthorized", "denied", "no basic auth credentials":
			return errdefs.ErrPermissionDenied
		case "manifest unknown", "name unknown":
			return errdefs.ErrNotFound
		}
	}
	// A code that the protocol does not know, such as Harbor's NOT_FOUND, is printed as unknown.
	if _, words, ok := strings.Cut(text, "unknown: artifact "); ok && strings.HasSuffix(words, " not found") {
		return errdefs.ErrNotFound
	}
	return nil
}
