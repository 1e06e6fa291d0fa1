package dockerx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
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
		return fmt.Errorf("call to the engine given up: %w", ctx.Err())
	case isContextual(err):
		return fmt.Errorf("no answer from the engine within %s: %w", within, errdefs.ErrUnavailable)
	case isUnclear(err):
		return fmt.Errorf("%w: %w", errdefs.ErrUnavailable, withoutURL(err))
	}
	return err
}

// isContextual reports whether a context ended the call, the caller's or the operation's.
func isContextual(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// withoutURL is err without the request that it names, whose query is long and tells nobody anything.
func withoutURL(err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		return request.Err
	}
	return err
}

// isUnclear reports whether the connection failed before the whole answer was here.
func isUnclear(err error) bool {
	var netErr net.Error
	var syntaxErr *json.SyntaxError
	return client.IsErrConnectionFailed(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &netErr) || errors.As(err, &syntaxErr)
}

// reclass makes err one of class to instead of one of class from, and keeps its text.
func reclass(err error, from func(error) bool, to error) error {
	if err == nil || !from(err) {
		return err
	}
	return &classed{err: err, class: to}
}

// classed is an error whose class is class alone: what it wraps is for people.
type classed struct{ err, class error }

// Error implements error.
func (c *classed) Error() string { return c.err.Error() }

// Unwrap returns the class.
func (c *classed) Unwrap() error { return c.class }

// ignore makes errors of one class a success.
func ignore(err error, class func(error) bool) error {
	if class(err) {
		return nil
	}
	return err
}
