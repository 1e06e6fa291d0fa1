// Package dockerx wraps the Docker engine API: value types of its own, one method per engine operation, and errors with
// classes that callers can act on. No other package imports the Docker SDK. It promises no compatibility to importers
// outside this module.
//
// # Errors
//
// Every error has one class of containerd/errdefs. Classes are derived from the engine's HTTP status, never from
// the text of a message:
//
//   - ErrUnavailable: outcome unknown. The engine could not be reached, closed the connection, or did not answer within the deadline
//     of the operation. The operation may have taken effect, or may still take effect later.
//   - ErrNotFound, ErrAlreadyExists, ErrInvalidArgument, ErrFailedPrecondition, ErrPermissionDenied, ErrAborted,
//     ErrOutOfRange: the engine, or this package on its behalf, refused, and nothing changed. Each method documents which
//     of them it returns and when.
//   - anything else, such as ErrInternal: the engine tried and failed. Try again.
//
// A context that the caller cancelled, or whose deadline passed, gives an error that wraps context.Canceled or
// context.DeadlineExceeded; as with ErrUnavailable, the operation may still have taken effect.
//
// # Deadlines
//
// Each operation has a deadline of its own, in addition to the caller's: see Deadline. Options.Observe is called once per
// operation, with one of the names that Ops returns.
//
// # Engines
//
// Docker 20.10 (API 1.41) and newer, over a Unix socket or plain TCP. The engine may be down when New is called, and may
// be replaced by another version while the Engine is in use.
package dockerx
