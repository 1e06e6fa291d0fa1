package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/host/passwd"
)

const (
	// copyTimeout bounds the copy of one source: a million files take some minutes.
	copyTimeout = time.Hour
	// maxPasswdBytes bounds the bytes read of an image's passwd and group files.
	maxPasswdBytes = 1 << 20
)

// copyFiles copies host files into a primary that has never run, in the background. An interrupted copy starts again from the beginning:
// nothing has read the files before the container runs.
func (p *pass) copyFiles(ctx context.Context, s plan.Step) error {
	id := cmp.Or(s.ID, p.made[""])
	return p.background(ctx, s, id, 0, "copying files", p.audited(s, id, func(ctx context.Context) error { return p.copyAll(ctx, id) }))
}

func (p *pass) copyAll(ctx context.Context, id string) error {
	owner, err := p.owner(ctx, id)
	if err != nil {
		return err
	}
	for i, c := range p.sb.Spec.GetCopies() {
		if err := p.copyOne(ctx, id, c, owner); err != nil {
			return fmt.Errorf("copies[%d]: %w", i, err)
		}
	}
	return nil
}

func (p *pass) copyOne(ctx context.Context, id string, c *agboxv1.CopySpec, owner passwd.Identity) error {
	missing, err := p.missingDirs(ctx, id, c.GetTarget())
	if err != nil {
		return err
	}
	base := p.unpackAt(c.GetTarget())
	for i, dir := range missing {
		missing[i] = below(base, dir)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // stops Pack when the engine stops reading
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := hostfiles.Pack(ctx, w, hostfiles.Copy{
			Source: c.GetSource(), Target: below(base, c.GetTarget()), Exclude: c.GetExcludePatterns(),
			UID: int(owner.UID), GID: int(owner.GID), Missing: missing,
		})
		w.CloseWithError(err) // nil is the end of the stream
		packed <- err
	}()
	sent := p.o.Engine.WriteTar(ctx, id, base, copyTimeout, r)
	r.CloseWithError(io.ErrClosedPipe)
	source := <-packed
	if source != nil && !errors.Is(source, io.ErrClosedPipe) && !errors.Is(source, context.Canceled) {
		return source // an error of the source tree is the cause of the engine's error
	}
	return sent
}

// unpackAt returns the directory in which the engine unpacks a copy to target: the volume that has it if the root is read-only, else the root.
func (p *pass) unpackAt(target string) string {
	for _, dir := range validate.WritableRoots(p.sb.Spec) {
		if below(dir, target) != target {
			return dir
		}
	}
	return "/"
}

// below returns a path as it is named in the directory base, if that holds it, else the path itself.
func below(base, path string) string {
	if rest, ok := strings.CutPrefix(path, base); ok && (rest == "" || rest[0] == '/') {
		return cmp.Or(rest, "/")
	}
	return path
}

// missingDirs returns the directories that the copy has to create; see hostfiles.Copy. It refuses a target whose path contains a symbolic
// link of the image: the engine would follow it, possibly into a mount and so onto the host.
func (p *pass) missingDirs(ctx context.Context, id, target string) ([]string, error) {
	dirs := append(hostfiles.Parents(target), target)
	for i, dir := range dirs {
		info, err := p.o.Engine.StatPath(ctx, id, dir)
		switch {
		case errdefs.IsNotFound(err):
			return dirs[i:], nil // everything below a missing directory is missing
		case err != nil:
			return nil, err
		case info.Mode.Type() == fs.ModeSymlink:
			return nil, fmt.Errorf("target %q goes through %q, which is a link to %q in the image; name the place itself: %w",
				target, dir, info.LinkTarget, errdefs.ErrInvalidArgument)
		}
	}
	return nil, nil
}

// owner returns the user that execs of the container run as, as its PID 1 will find it before the image's entrypoint has run.
func (p *pass) owner(ctx context.Context, id string) (passwd.Identity, error) {
	users, err := p.containerFile(ctx, id, "/etc/passwd")
	if err != nil {
		return passwd.Identity{}, err
	}
	groups, err := p.containerFile(ctx, id, "/etc/group")
	if err != nil {
		return passwd.Identity{}, err
	}
	d, err := p.o.Engine.InspectContainer(ctx, id)
	if err != nil {
		return passwd.Identity{}, err
	}
	user := p.sb.Spec.GetUser()
	if own, ok := passwd.ParseOwn(argument(d.Entrypoint, hostUserFlag)); ok && own.Is(user) {
		users, groups = own.AddTo(users, groups)
		user = cmp.Or(user, own.Name)
	}
	if user == "" { // a container of an older release
		user = passwd.Default(users, argument(d.Entrypoint, "--default-user="))
	}
	who, err := passwd.Lookup(users, groups, user)
	if err != nil {
		return who, fmt.Errorf("find the owner of copied files: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return who, nil
}

// argument returns the value of the first argument with that prefix; empty: there is none.
func argument(args []string, prefix string) string {
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, prefix); ok {
			return value
		}
	}
	return ""
}

// containerFile reads an optional file of the image; nil: it is missing. Errors: ErrInvalidArgument if it is too large or not a regular
// file.
func (p *pass) containerFile(ctx context.Context, id, name string) ([]byte, error) {
	data, err := p.o.Engine.ReadContainerFile(ctx, id, name, maxPasswdBytes)
	switch {
	case errdefs.IsNotFound(err):
		return nil, nil
	case errdefs.IsFailedPrecondition(err), errdefs.IsOutOfRange(err):
		return nil, fmt.Errorf("the image's %s: %w: %w", name, err, errdefs.ErrInvalidArgument)
	}
	return data, err
}
