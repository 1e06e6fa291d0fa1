package hostfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// MaxSecretBytes bounds a secret, as in Kubernetes.
const MaxSecretBytes = 1 << 20

// FileID changes when a path gets another file or its file another content. The zero value is that of no file.
type FileID struct {
	dev, inode   uint64
	size         int64
	mtime, ctime unix.Timespec
}

// Identify returns the FileID of the file that path leads to, symbolic links followed.
func Identify(path string) (FileID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return FileID{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return idOf(&st), nil
}

// Settled reports whether a later change of the file's content would change its FileID. The times of a file have the resolution of the
// kernel's clock tick, and of one second on some file systems.
func (f FileID) Settled(now time.Time) bool {
	return now.Sub(time.Unix(f.ctime.Unix())) > 2*time.Second
}

func idOf(st *unix.Stat_t) FileID {
	return FileID{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
}

// ReadSecret reads the regular file that path leads to. It follows symbolic links; refuses judges the path of the file itself, and returns
// why it may not be used, as the rest of a sentence, or "". It waits for no FIFO and opens no device. why is empty, or the reason why there
// is no data, as the rest of a sentence that starts with the path; it never holds content.
func ReadSecret(path string, refuses func(resolved string) string) (data []byte, id FileID, why string) {
	ref, err := retried(func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, id, unread(err)
	}
	defer unix.Close(ref)
	var st unix.Stat_t
	itself := "/proc/self/fd/" + strconv.Itoa(ref)
	resolved, err := os.Readlink(itself)
	if err := errors.Join(err, unix.Fstat(ref, &st)); err != nil {
		return nil, id, unread(err)
	}
	switch why := refuses(resolved); {
	case why != "" && resolved != path:
		return nil, id, fmt.Sprintf("leads to %q, which %s", resolved, why)
	case why != "":
		return nil, id, why
	}
	if why := unfit(&st); why != "" { // after the policy: the size of a file that it refuses is not told
		return nil, id, why
	}
	fd, err := retried(func() (int, error) { return unix.Open(itself, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, id, unread(err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, MaxSecretBytes+1))
	switch {
	case err != nil:
		return nil, id, unread(err)
	case len(data) > MaxSecretBytes:
		return nil, id, fmt.Sprintf("grew while it was being read; the limit of a secret is %d bytes", MaxSecretBytes)
	}
	return data, idOf(&st), ""
}

func unfit(st *unix.Stat_t) string {
	switch {
	case !isType(st.Mode, unix.S_IFREG):
		return "is not a regular file"
	case st.Size > MaxSecretBytes:
		return fmt.Sprintf("is %d bytes; the limit of a secret is %d", st.Size, MaxSecretBytes)
	}
	return ""
}

func unread(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "does not exist on this host"
	}
	if path, ok := errors.AsType[*os.PathError](err); ok {
		err = path.Err
	}
	return fmt.Sprintf("can't be read by agboxd: %v", err)
}

// CheckSecrets checks the files of the secrets of a spec on this host. It returns every broken one. For refuses, see ReadSecret. It leaves
// out files for which known is true.
func CheckSecrets(spec *agboxv1.CreateSpec, known func(file string) bool, refuses func(resolved string) string) (broken validate.Errors) {
	check := func(prefix string, secrets []*agboxv1.SecretSpec) {
		for _, s := range secrets {
			if known(s.GetFile()) {
				continue
			}
			_, _, why := ReadSecret(s.GetFile(), refuses)
			addSource(&broken, prefix+"secrets["+s.GetName()+"].file", s.GetFile(), why)
		}
	}
	check("", spec.GetSecrets())
	for _, s := range spec.GetRequiredServices() {
		check("required_services["+s.GetName()+"].", s.GetSecrets())
	}
	for _, s := range spec.GetOptionalServices() {
		check("optional_services["+s.GetName()+"].", s.GetSecrets())
	}
	return broken
}

// SecretFiles returns the files of the secrets of a spec.
func SecretFiles(spec *agboxv1.CreateSpec) (files []string) {
	_ = CheckSecrets(spec, func(file string) bool { files = append(files, file); return true }, nil)
	return files
}
