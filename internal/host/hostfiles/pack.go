package hostfiles

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Copy is a host file or directory and its target.
type Copy struct {
	// Source is absolute, clean, and contains no symbolic link.
	Source string
	// Target is absolute and clean: the path of the file, or the directory for the contents of a directory.
	Target string
	// Exclude are lines of .gitignore, relative to Source; ignored for a file.
	Exclude []string
	// UID and GID own all copied files.
	UID, GID int
	// Missing are those of Parents(Target), and Target, that do not exist in the container. Only they get entries as
	// directories: an entry for an existing directory would change its mode and owner. Target gets none for a file.
	Missing []string
}

// Parents returns the directories above target except the root, outermost first.
func Parents(target string) []string {
	var list []string
	for dir := filepath.Dir(filepath.Clean(target)); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		list = append(list, dir)
	}
	slices.Reverse(list)
	return list
}

// Pack writes c as a tar stream whose names are target paths without the leading slash, to be unpacked at the container's
// root; a global header comes first. Memory use does not depend on the number of files. After an error the stream is
// truncated and must not be taken for a complete one; a retry from the start is safe.
//
// It keeps permissions, modification times, symbolic links, and holes as zeros. It drops set-user-ID and set-group-ID bits,
// as cp does when it does not keep the owner. Hard links become separate files; extended attributes are left out. An
// absolute link into the tree becomes relative. Directories inside the tree have entries even if they exist in the
// container, so they get the mode and owner of the copy.
//
// Entries that cannot be copied, and are not excluded, are ErrInvalidArgument with the path: FIFOs, devices, sockets, links
// that leave the tree at any point, files that the daemon's user may not read, directories nested more than maxDepth deep,
// target paths longer than maxPath. Excluded entries are neither opened nor judged.
//
// The tree may change meanwhile. Removed entries are left out. A file that grows is cut at its initial size, which is a state
// that it had; a file that shrinks is ErrUnavailable, as is an entry that changes its type.
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

// begin writes a global header. The engine detects compressed archives by their first bytes, which would otherwise be the
// first name: "BZh" means bzip2.
func (p *packer) begin() error {
	return p.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "agbox"}})
}

// source packs the source.
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

// missing writes entries for the directories above the target.
func (p *packer) missing(st *unix.Stat_t) error {
	for _, dir := range p.copy.Missing {
		if dir == p.copy.Target && !isType(st.Mode, unix.S_IFDIR) {
			continue
		}
		if !within(p.copy.Target, dir) {
			return fmt.Errorf("%q is not a parent directory of %q: %w", dir, p.copy.Target, errdefs.ErrInvalidArgument)
		}
		header := tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755}
		if err := p.write(&header, st); err != nil {
			return err
		}
	}
	return nil
}

// within reports whether path is dir or below it; both are absolute and clean.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// tree packs the contents of the directory that top refers to.
func (p *packer) tree(top int) error {
	fd, err := openat(top, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return unreadableEntry(".", err)
	}
	if p.root, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
		unix.Close(fd)
		return err
	}
	defer func() { _ = p.root.Close() }()
	p.prefix = strings.TrimPrefix(strings.TrimSuffix(p.copy.Target, "/")+"/", "/")
	return p.contents(fd, "", 0)
}

// single packs the source as a single file.
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

// changed returns the error for an entry that changed during the copy.
func changed(what string, err error) error {
	return fmt.Errorf("%s changed while it was copied: %w", what, errors.Join(err, errdefs.ErrUnavailable))
}
