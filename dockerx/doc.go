// Package dockerx is the Docker engine in the terms of agbox: value types of its own, one method per engine operation,
// errors that a caller can decide on. No other package sees the Docker SDK. It promises no compatibility to importers
// outside this module.
//
// # Errors
//
// Every error answers to one class of containerd/errdefs, and classes come from the engine's HTTP status, never from
// the text of a message:
//
//   - ErrUnavailable: no clear answer. The engine could not be reached, hung up, or did not answer within the deadline
//     of the operation. The operation may have taken effect, or may still take effect later.
//   - ErrNotFound, ErrAlreadyExists, ErrInvalidArgument, ErrFailedPrecondition, ErrPermissionDenied, ErrAborted,
//     ErrOutOfRange: the engine, or this package in its place, refused, and nothing changed. Each method says which of
//     them it returns and when.
//   - anything else, such as ErrInternal: the engine tried and did not manage. Try again.
//
// A context that the caller cancelled, or whose deadline passed, gives an error that wraps context.Canceled or
// context.DeadlineExceeded; what ErrUnavailable says about the effect is true there too.
//
// # Deadlines
//
// Each operation has a deadline of its own, on top of the caller's: see Deadline. It is counted once for Options.Observe,
// under one of the names that Ops returns.
//
// # Engines
//
// Docker 20.10 (API 1.41) and newer, over a Unix socket or plain TCP. The engine may be down when New is called, and may
// come back as another version: see Engine.
package dockerx
