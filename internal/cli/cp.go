package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/filetree"
	"github.com/agbox/agbox/internal/wait"
)

const (
	// resumableBytes is the size from which a copy of a single file can be continued.
	resumableBytes = 64 << 20
	// copyPatience is how long an interrupted upload of such a file waits for the daemon and the sandbox.
	copyPatience = 30 * time.Second
	// copyProgress is how long a copy is silent.
	copyProgress = time.Second
)

type cpOptions struct {
	user            string
	follow, archive bool
}

func (a *app) cpCommand() *cobra.Command {
	var o cpOptions
	cmd := &cobra.Command{
		Use: "cp (NAME:PATH LOCAL | LOCAL NAME:PATH)", Short: "Copy files and trees into and out of a sandbox", SuggestFor: []string{"copy", "scp"},
		Long: `Copy a file or a tree into or out of a sandbox. Types, modes, times, hard links and extended attributes are kept; the copies belong to the
user who makes them, unless -a is given. The rules are those of "docker cp": a directory is copied into an existing directory, or becomes a
new one; "DIR/." copies its content. A relative PATH is below the home of the user. With "-" as LOCAL, a tar stream is written to standard
output or read from standard input.

A file gets its new content at once. A copy of a single file of 64 MiB or more that was cut off continues where it was, also when the
command is given again; until then it is a file ".NAME.agbox-..." beside the target. Out of a stopped sandbox files are copied as root.
Devices and set-user-ID bits do not leave a sandbox, unless -a is given. What cannot be copied is listed, and the exit code is then 1.`,
		Example: "  agbox cp report.csv web:/workspace/\n  agbox cp web:/var/log ./logs\n  agbox cp src/. web:app\n  agbox cp web:/etc - | tar t",
		Args:    exactly(2, "a source and a target, one of them NAME:PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromSandbox := remote(args[0])
			to, toSandbox := remote(args[1])
			if fromSandbox == toSandbox {
				return usagef(cmd, "expected one of SOURCE and TARGET as NAME:PATH; a local path with a colon is written ./NAME:PATH")
			}
			if fromSandbox {
				return a.copyOut(cmd.Context(), from, args[1], o)
			}
			return a.copyIn(cmd.Context(), args[0], to, o)
		},
	}
	cmd.Flags().StringVarP(&o.user, "user", "u", "", "read or write as this user of the sandbox (default the sandbox's)")
	cmd.Flags().BoolVarP(&o.follow, "follow-link", "L", false, "copy what SOURCE leads to if it is a symbolic link")
	cmd.Flags().BoolVarP(&o.archive, "archive", "a", false, "keep the numeric owners; only root may")
	return cmd
}

// place is a path in a sandbox.
type place struct{ name, path string }

// remote parses NAME:PATH. A path with a slash before the colon is local, as with scp.
func remote(arg string) (place, bool) {
	name, path, ok := strings.Cut(arg, ":")
	if !ok || name == "" || strings.ContainsAny(name, "/.") && !strings.HasPrefix(name, kindSandbox+"/") {
		return place{}, false
	}
	if path == "" {
		path = "."
	}
	return place{name, path}, true
}

// copySource is what is copied.
type copySource struct {
	dir      bool
	base     string
	contents bool // DIR/.
}

// copyTarget is where it goes.
type copyTarget struct {
	path   string
	exists bool
	dir    bool
}

// landing returns the directory and the name under which a source is copied, by the rules of docker cp; "." for the content of the source.
func (s copySource) landing(t copyTarget) (dir, name string, err error) {
	slash := strings.HasSuffix(t.path, "/") || strings.HasSuffix(t.path, "/.")
	trimmed := strings.TrimRight(strings.TrimSuffix(t.path, "/."), "/")
	parent, last := "", trimmed
	if i := strings.LastIndexByte(trimmed, '/'); i >= 0 {
		parent, last = trimmed[:max(i, 1)], trimmed[i+1:]
	}
	if parent == "" {
		parent = "."
	}
	switch {
	case t.dir && s.dir && s.contents:
		return t.path, ".", nil
	case t.dir:
		return t.path, s.base, nil
	case t.exists && s.dir:
		return "", "", fmt.Errorf("cannot copy a directory to %s: it is a file", t.path)
	case t.exists && slash:
		return "", "", fmt.Errorf("%s is not a directory", t.path)
	case !t.exists && slash && !s.dir:
		return "", "", fmt.Errorf("the directory %s does not exist", t.path)
	}
	return parent, last, nil
}

// renamer renames the root of an archive, which is base or ".", to name or ".".
func renamer(base, name string) func(string) (string, bool) {
	return func(entry string) (string, bool) {
		if base == "." {
			return filepath.Join(name, entry), true
		}
		first, rest, _ := strings.Cut(entry, "/")
		if first != base {
			return entry, true
		}
		return filepath.Join(name, rest), true
	}
}

// copying counts what a copy has moved, shows it on a terminal, and lists what it skips.
type copying struct {
	a       *app
	what    string
	bytes   atomic.Int64
	skipped int
	stop    func()
}

func (a *app) startCopy(what string) *copying {
	c := &copying{a: a, what: what}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(copyProgress)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				a.notes.show(fmt.Sprintf("%s: %s", what, units.BytesSize(float64(c.bytes.Load()))))
			}
		}
	}()
	c.stop = func() {
		close(done)
		<-ended
		a.notes.clear()
	}
	return c
}

func (c *copying) skip(text string) {
	c.skipped++
	c.a.complain(errors.New(text))
}

// outcome is the error of the copy, or of what it skipped.
func (c *copying) outcome(err error) error {
	if err == nil && c.skipped > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

func (c *copying) reader(r io.Reader) io.Reader { return counted{r, nil, &c.bytes} }
func (c *copying) writer(w io.Writer) io.Writer { return counted{nil, w, &c.bytes} }

type counted struct {
	r io.Reader
	w io.Writer
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// copyIn copies a local file, a tree, or a tar stream into a sandbox.
func (a *app) copyIn(ctx context.Context, local string, to place, o cpOptions) error {
	sb, err := a.sandboxKind().resolve(ctx, to.name)
	if err != nil {
		return err
	}
	id := sb.GetSandboxId()
	c := a.startCopy("copying to " + to.name)
	defer c.stop()
	if local == "-" {
		return c.unpackIn(ctx, &agboxv1.WriteArchiveStart{SandboxId: id, Path: to.path, User: o.user, KeepOwners: o.archive}, a.In)
	}
	st, err := os.Lstat(local)
	if err == nil && o.follow {
		st, err = os.Stat(local)
	}
	if err != nil {
		return err
	}
	t, err := a.remoteTarget(ctx, id, to.path, o.user)
	if err != nil {
		return err
	}
	absolute, err := filepath.Abs(local)
	if err != nil {
		return err
	}
	dir, name, err := copySource{st.IsDir(), filepath.Base(absolute), contents(local)}.landing(t)
	if err != nil {
		return err
	}
	if st.Mode().IsRegular() && !o.archive {
		return c.fileIn(ctx, id, absolute, dir, name, o.user)
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := filetree.Pack(w, local, filetree.PackOptions{Name: name, Follow: o.follow, Skipped: c.skip})
		packed <- errors.Join(err, w.CloseWithError(err))
	}()
	err = c.unpackIn(ctx, &agboxv1.WriteArchiveStart{SandboxId: id, Path: dir, User: o.user, KeepOwners: o.archive}, r)
	_ = r.CloseWithError(io.ErrClosedPipe)
	if perr := <-packed; perr != nil && !errors.Is(perr, io.ErrClosedPipe) {
		return perr
	}
	return c.outcome(err)
}

// contents reports whether a path means the content of a directory.
func contents(path string) bool { return path == "." || strings.HasSuffix(path, "/.") }

func (c *copying) unpackIn(ctx context.Context, start *agboxv1.WriteArchiveStart, r io.Reader) error {
	resp, err := c.a.conn().WriteArchive(ctx, start, c.reader(r))
	for _, text := range resp.GetSkipped() {
		c.skip(text)
	}
	return c.outcome(err)
}

func (a *app) remoteTarget(ctx context.Context, id, path, user string) (copyTarget, error) {
	e, err := a.conn().StatFile(ctx, &agboxv1.StatRequest{SandboxId: id, Path: path, User: user, Follow: true})
	if client.Reason(err) == client.ReasonFileNotFound {
		return copyTarget{path: path}, nil
	}
	return copyTarget{path, err == nil, e.GetType() == agboxv1.FileType_FILE_TYPE_DIRECTORY}, err
}

// fileIn copies one regular file.
func (c *copying) fileIn(ctx context.Context, id, local, dir, name, user string) error {
	f, err := os.OpenFile(local, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	mode := bits(st.Mode())
	final := strings.TrimSuffix(dir, "/") + "/" + name
	start := &agboxv1.WriteFileStart{SandboxId: id, Path: final, User: user, Mode: &mode, ModifiedAt: timestamppb.New(st.ModTime())}
	if st.Size() < resumableBytes {
		_, err := c.a.conn().WriteFile(ctx, start, c.reader(f))
		return err
	}
	return c.largeIn(ctx, f, st, start)
}

// largeIn uploads to a file beside the target, from where an earlier upload of the same file was cut off, and renames it at the end.
func (c *copying) largeIn(ctx context.Context, f *os.File, st os.FileInfo, final *agboxv1.WriteFileStart) error {
	part := partName(final.GetPath(), fmt.Sprintf("%s %d %d", f.Name(), st.Size(), st.ModTime().UnixNano()))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lost time.Time // since when nothing was sent
	for {
		sent, err := c.continueIn(ctx, f, part, final)
		if err == nil {
			break
		}
		now := time.Now()
		if sent || lost.IsZero() {
			lost = now
		}
		if !client.IsUnavailable(err) || now.Sub(lost) > copyPatience {
			return fmt.Errorf("%w; the same command continues the copy", err)
		}
		if err := wait.For(ctx, retryEvery); err != nil {
			return err
		}
	}
	if again, err := f.Stat(); err != nil || again.Size() != st.Size() || !again.ModTime().Equal(st.ModTime()) {
		return errors.Join(fmt.Errorf("%s changed while it was copied; copy it again", f.Name()), err)
	}
	_, err := c.a.conn().MoveFile(ctx, &agboxv1.MoveRequest{SandboxId: final.GetSandboxId(), User: final.GetUser(), FromPath: part, ToPath: final.GetPath()})
	return err
}

// continueIn sends what is missing. sent reports whether it sent anything.
func (c *copying) continueIn(ctx context.Context, f *os.File, part string, final *agboxv1.WriteFileStart) (sent bool, err error) {
	e, err := c.a.conn().StatFile(ctx, &agboxv1.StatRequest{SandboxId: final.GetSandboxId(), User: final.GetUser(), Path: part})
	if err != nil && client.Reason(err) != client.ReasonFileNotFound {
		return false, err
	}
	at := e.GetSizeBytes()
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return false, err
	}
	c.bytes.Store(at)
	_, err = c.a.conn().WriteFile(ctx, &agboxv1.WriteFileStart{
		SandboxId: final.GetSandboxId(), User: final.GetUser(), Path: part, Offset: &at, Mode: final.Mode, ModifiedAt: final.GetModifiedAt(),
	}, c.reader(f))
	return c.bytes.Load() > at, err
}

// partName is the name of an unfinished copy. of identifies what is copied.
func partName(final, of string) string {
	i := strings.LastIndexByte(final, '/') + 1
	const most = 200 // bytes of the name; a file system has 255
	base := final[i:]
	return fmt.Sprintf("%s.%s.agbox-%.8x", final[:i], base[:min(len(base), most)], sha256.Sum256([]byte(of)))
}

// bits returns the bits of chmod(2).
func bits(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			mode |= bit
		}
	}
	return mode
}

// copyOut copies a file or a tree of a sandbox to a local path, or as a tar stream to standard output.
func (a *app) copyOut(ctx context.Context, from place, local string, o cpOptions) error {
	sb, err := a.sandboxKind().resolve(ctx, from.name)
	if err != nil {
		return err
	}
	id := sb.GetSandboxId()
	c := a.startCopy("copying from " + from.name)
	defer c.stop()
	req := &agboxv1.ReadArchiveRequest{SandboxId: id, Path: from.path, User: o.user, Follow: o.follow}
	if local == "-" {
		if isTerminal(a.Out) {
			return errors.New("a tar stream is not written to a terminal; redirect it")
		}
		return c.outcome(a.conn().ReadArchive(ctx, req, c.writer(a.Out), c.skip))
	}
	e, err := a.conn().StatFile(ctx, &agboxv1.StatRequest{SandboxId: id, Path: from.path, User: o.user, Follow: o.follow})
	if err != nil {
		return err
	}
	t, err := localTarget(local)
	if err != nil {
		return err
	}
	isDir := e.GetType() == agboxv1.FileType_FILE_TYPE_DIRECTORY
	base := pathBase(from.path, e)
	dir, name, err := copySource{isDir, base, contents(from.path)}.landing(t)
	if err != nil {
		return err
	}
	if e.GetType() == agboxv1.FileType_FILE_TYPE_REGULAR && !o.archive {
		return c.fileOut(ctx, &agboxv1.ReadFileRequest{SandboxId: id, Path: from.path, User: o.user}, filepath.Join(dir, name))
	}
	root := base
	if contents(from.path) || base == "/" {
		root = "."
	}
	r, w := io.Pipe()
	received := make(chan error, 1)
	go func() {
		err := a.conn().ReadArchive(ctx, req, c.writer(w), c.skip)
		received <- errors.Join(err, w.CloseWithError(err))
	}()
	_, err = filetree.Unpack(r, dir, filetree.UnpackOptions{KeepOwners: o.archive, Untrusted: !o.archive, Rename: renamer(root, name), Skipped: c.skip})
	if err == nil {
		_, err = io.Copy(io.Discard, r) // padding
	}
	_ = r.CloseWithError(io.ErrClosedPipe)
	if rerr := <-received; rerr != nil && !errors.Is(rerr, io.ErrClosedPipe) {
		return rerr
	}
	return c.outcome(err)
}

// pathBase is the name of a source: the last element of its path, or of the directory that "." is.
func pathBase(path string, e *agboxv1.FileEntry) string {
	path = strings.TrimSuffix(path, "/.")
	if path == "." || path == "" {
		path = strings.TrimSuffix(e.GetPath(), "/.")
	}
	return filepath.Base(path)
}

func localTarget(path string) (copyTarget, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return copyTarget{path: path}, nil
	}
	if err != nil {
		return copyTarget{}, err
	}
	return copyTarget{path, true, st.IsDir()}, nil
}

// fileOut copies one regular file to a file beside the target and renames it at the end. One that is large is kept when the copy is cut off.
func (c *copying) fileOut(ctx context.Context, req *agboxv1.ReadFileRequest, final string) (err error) {
	st, err := c.a.conn().StatFile(ctx, &agboxv1.StatRequest{SandboxId: req.GetSandboxId(), User: req.GetUser(), Path: req.GetPath(), Follow: true})
	if err != nil {
		return err
	}
	if st, err := os.Stat(final); err == nil && !st.Mode().IsRegular() { // such as /dev/null
		return c.stream(ctx, req, final)
	}
	if resolved, err := filepath.EvalSymlinks(final); err == nil {
		final = resolved
	}
	part := partName(final, st.GetPath()+" "+st.GetVersion())
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	resumable := st.GetSizeBytes() >= resumableBytes && st.GetVersion() != ""
	defer func() {
		f.Close()
		if err != nil && resumable {
			err = fmt.Errorf("%w; the same command continues the copy", err)
		} else if err != nil {
			err = errors.Join(err, os.Remove(part))
		}
	}()
	if resumable {
		if req.Offset, err = f.Seek(0, io.SeekEnd); err != nil {
			return err
		}
	} else if err := f.Truncate(0); err != nil {
		return err
	}
	c.bytes.Store(req.GetOffset())
	r, err := c.a.conn().OpenFile(ctx, req)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was read only
	if r.Entry().GetVersion() != st.GetVersion() {
		return fmt.Errorf("%s changed while it was copied; copy it again", req.GetPath())
	}
	if _, err := io.Copy(c.writer(f), r); err != nil {
		return err
	}
	mode := fs.FileMode(r.Entry().GetMode() & 0o777)
	if err := errors.Join(f.Chmod(mode), os.Chtimes(part, time.Time{}, r.Entry().GetModifiedAt().AsTime()), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, final)
}

// stream copies a file into something that is no regular file.
func (c *copying) stream(ctx context.Context, req *agboxv1.ReadFileRequest, final string) error {
	r, err := c.a.conn().OpenFile(ctx, req)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was read only
	f, err := os.OpenFile(final, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(c.writer(f), r)
	return errors.Join(err, f.Close())
}
