package hostfiles

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Copy is a host file or directory and where it goes.
type Copy struct {
	// Source is absolute and clean and has no symbolic link in it.
	Source string
	// Target is absolute and clean: the file itself for a file, the directory that gets the contents for a directory.
	Target string
	// Exclude are lines of .gitignore, relative to Source; of no meaning for a file.
	Exclude []string
	// UID and GID own everything that is copied.
	UID, GID int
	// Missing are those of Parents(Target), and Target, that the container does not have. Only they get entries as
	// directories: one for a directory that exists would change its mode and owner. Target gets none for a file.
	Missing []string
}

// Parents returns the directories above target but for the root, outermost first.
func Parents(target string) []string {
	var list []string
	for dir := filepath.Dir(filepath.Clean(target)); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		list = append(list, dir)
	}
	slices.Reverse(list)
	return list
}

// Pack writes c as a tar stream whose names are target paths without the leading slash, to be unpacked at the
// container's root; a global header comes first. Memory does not grow with the number of files. When it returns an error the stream is cut off and must
// not be taken for a whole one; a repetition from the start is safe.
//
// Kept are permissions, modification times, symbolic links, and holes as zeros. Set-user-ID and set-group-ID bits are
// dropped, as cp does when it does not keep the owner they speak of. Hard links become files of their own; extended
// attributes are left out. An absolute link into the tree is made relative. Directories inside the tree have entries even
// if the container has them, so those take the mode and owner of the copy.
//
// What no copy can be made of, and is not excluded, is an ErrInvalidArgument with its path: FIFOs, devices, sockets, links
// that lead out of the tree on any part of their way, what the daemon's user may not read, more than maxDepth
// directories in each other, target paths longer than maxPath. What is excluded is neither opened nor judged.
//
// The tree may change meanwhile. What vanishes is left out. A file that grows is cut at the size that it began with, a
// state that it had; one that shrinks was never what we would hand over, so that is ErrUnavailable, as is a name that
// turns into something else.
func Pack(ctx context.Context, w io.Writer, c Copy) error {
	rules, err := parseExcludes(c.Exclude)
	if err != nil {
		return err
	}
	p := packer{ctx: ctx, tw: tar.NewWriter(w), copy: c, rules: rules, buf: make([]byte, 64<<10)}
	err = p.begin()
	if err == nil {
		err = p.source()
	}
	if err == nil {
		err = p.tw.Close()
	}
	if err != nil {
		return fmt.Errorf("copy %q: %w", c.Source, err)
	}
	return nil
}

// begin writes what says nothing. The engine tells compressed archives by their first bytes, which would be those of the first
// name otherwise: "BZh" is bzip2.
func (p *packer) begin() error {
	return p.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "agbox"}})
}

// source packs the whole.
func (p *packer) source() error {
	if why := refused(p.copy.Source, fileOrDir, "file or directory"); why != "" {
		return fmt.Errorf("it %s: %w", why, errdefs.ErrFailedPrecondition)
	}
	f, err := Open(p.copy.Source)
	if err != nil {
		return changed("the source", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if err := p.missing(&st); err != nil {
		return err
	}
	if isType(st.Mode, unix.S_IFDIR) {
		return p.tree(int(f.Fd()))
	}
	return p.single()
}

// missing writes entries for the directories that lead to the target.
func (p *packer) missing(st *unix.Stat_t) error {
	for _, dir := range p.copy.Missing {
		if dir == p.copy.Target && !isType(st.Mode, unix.S_IFDIR) {
			continue
		}
		if !within(p.copy.Target, dir) {
			return fmt.Errorf("%q is no directory on the way to %q: %w", dir, p.copy.Target, errdefs.ErrInvalidArgument)
		}
		header := tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755}
		if err := p.write(&header, st); err != nil {
			return err
		}
	}
	return nil
}

// within tells whether path is dir or below it; both are absolute and clean.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// tree packs the contents of the directory that top refers to.
func (p *packer) tree(top int) error {
	fd, err := openat(top, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return unreadableEntry(".", err)
	}
	p.root, p.prefix = top, strings.TrimPrefix(strings.TrimSuffix(p.copy.Target, "/")+"/", "/")
	return p.contents(fd, "", 0)
}

// single packs the one file that the source is.
func (p *packer) single() error {
	dir, err := Open(filepath.Dir(p.copy.Source))
	if err != nil {
		return changed("the source", err)
	}
	defer dir.Close()
	name := filepath.Base(p.copy.Source)
	found, err := p.file(int(dir.Fd()), name, name, strings.TrimPrefix(p.copy.Target, "/"))
	if err == nil && !found {
		err = changed("the source", unix.ENOENT)
	}
	return err
}

// changed is the error of what was something else a moment ago.
func changed(what string, err error) error {
	return fmt.Errorf("%s changed while it was copied: %w", what, errors.Join(err, errdefs.ErrUnavailable))
}
