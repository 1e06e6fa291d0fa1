package apiserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// checkMountSources looks at the host: each source must be there, be a file, directory or socket, and have no symbolic
// link in its path. A link could be pointed elsewhere between now and the start of the container.
func checkMountSources(mounts []*agboxv1.MountSpec) (broken validate.Errors) {
	for i, m := range mounts {
		if why := refusedSource(m.GetSource()); why != "" {
			field := fmt.Sprintf("mounts[%d].source", i)
			broken = append(broken, validate.Error{Field: field, Message: fmt.Sprintf("%s %q %s", field, m.GetSource(), why)})
		}
	}
	return broken
}

// refusedSource says why the host path cannot be mounted, or returns "".
func refusedSource(source string) string {
	resolved, err := filepath.EvalSymlinks(source)
	if err != nil {
		return unreadable(err)
	}
	if resolved != source {
		return fmt.Sprintf("is, or goes through, a symbolic link; write %q", resolved)
	}
	info, err := os.Lstat(source)
	if err != nil {
		return unreadable(err)
	}
	if mode := info.Mode(); !mode.IsRegular() && !mode.IsDir() && mode.Type() != fs.ModeSocket {
		return "is not a file, directory or socket"
	}
	return ""
}

func unreadable(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "does not exist on this host"
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fmt.Sprintf("cannot be looked at: %v", err)
}
