package dockerx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"
)

// classify gives err its class. ctx is the caller's; within is the operation's own deadline, for the message.
func classify(ctx context.Context, within time.Duration, err error) error {
	switch {
	case err == nil:
		return nil
	case isContextual(err) && ctx.Err() != nil:
		return fmt.Errorf("call to the engine cancelled: %w", ctx.Err())
	case isContextual(err):
		return fmt.Errorf("no answer from the engine within %s: %w", within, errdefs.ErrUnavailable)
	case overQuota(err):
		return &classed{err: err, class: errdefs.ErrUnavailable}
	case isUnclear(err):
		return fmt.Errorf("%w: %w", errdefs.ErrUnavailable, withoutURL(err))
	}
	return err
}

// about adds what was attempted.
func about(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// isContextual reports whether the caller's or the operation's context ended the call.
func isContextual(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// withoutURL returns err without the request URL, whose query is long and of no use to the reader.
func withoutURL(err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		return request.Err
	}
	return err
}

// overQuota reports whether the engine met EDQUOT, on its disk or of its keys: the call succeeds once there is room. Only the text shows it:
// the engine's answer has no class, and statfs(2) does not show a quota. A full disk without a quota is observed on the disk itself.
func overQuota(err error) bool { return strings.Contains(err.Error(), syscall.EDQUOT.Error()) }

// isUnclear reports whether the connection failed before the complete response was received.
func isUnclear(err error) bool {
	var netErr net.Error
	var syntaxErr *json.SyntaxError
	return client.IsErrConnectionFailed(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &netErr) || errors.As(err, &syntaxErr)
}

// reclass changes the class of err from one to another, and keeps its text.
func reclass(err error, from func(error) bool, to error) error {
	if err == nil || !from(err) {
		return err
	}
	return &classed{err: err, class: to}
}

// classed is an error with exactly one class; the wrapped error only provides the text.
type classed struct{ err, class error }

func (c *classed) Error() string { return c.err.Error() }

func (c *classed) Unwrap() error { return c.class }

// ignore makes errors of one class a success.
func ignore(err error, class func(error) bool) error {
	if class(err) {
		return nil
	}
	return err
}
