// Package hostfiles is everything about paths of the host that go into sandboxes: sources of mounts, the host's side of
// built-in tools, and copies, which it packs as tar streams.
//
// A path is looked at without following a symbolic link, from the root of the file system on. What a check has seen can
// therefore not be pointed elsewhere by a link that is put into the path later: the next check refuses it.
//
// Errors. ErrInvalidArgument is about the tree or the request as it is: the same call fails again until somebody
// changes the files or the spec. ErrFailedPrecondition and ErrUnavailable are about the moment: trying again may mend
// them, as may anything unclassified, such as an I/O error. An error of the writer or of the context is returned wrapped.
package hostfiles
