// Package hostfiles handles the host paths that are mounted or copied into sandboxes: sources of mounts, the host's side of
// built-in tools, and copies, which it packs as tar streams.
//
// It resolves paths from the root of the file system without following symbolic links. So a link that is put into a path
// after a check cannot redirect it: the next check refuses it.
//
// Errors. ErrInvalidArgument concerns the tree or the request: the same call fails again until the files or the spec are
// changed. ErrFailedPrecondition, ErrUnavailable and unclassified errors, such as I/O errors, may be temporary: a retry may
// succeed. An error of the writer or of the context is returned wrapped.
package hostfiles
