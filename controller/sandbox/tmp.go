package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"io/fs"
	"path"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

const (
	tmpDir = "/tmp"
	// tmpHeld is a file that keeps tmpDir from being empty: gVisor mounts a tmpfs of its own over an empty or missing one, and a stop would
	// lose what the sandbox writes there.
	tmpHeld = tmpDir + "/.agbox"
)

// holdTmp puts tmpHeld into a container of a service, or of the primary (""), that does not run and whose runtime may be gVisor.
func (p *pass) holdTmp(ctx context.Context, id, service string) error {
	if service == "" && (!p.probes() || p.mountsTmp()) || service != "" && !p.doubtsDefault() {
		return nil
	}
	if _, err := p.o.Engine.StatPath(ctx, id, tmpHeld); !errdefs.IsNotFound(err) {
		return err
	}
	dir, err := p.o.Engine.StatPath(ctx, id, tmpDir)
	missing := errdefs.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return err
	case !missing && dir.Mode.Type() != fs.ModeDir: // such as a link of the image: gVisor follows it, the engine must not
		return nil
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if missing {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path.Base(tmpDir) + "/", Mode: 0o1777}); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: tmpHeld[1:], Mode: 0o444}); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return p.o.Engine.WriteTar(ctx, id, "/", 0, &archive)
}

// mountsTmp reports whether the primary has a mount at tmpDir: gVisor keeps that one.
func (p *pass) mountsTmp() bool {
	for _, m := range p.userMounts() {
		if path.Clean(m.Target) == tmpDir {
			return true
		}
	}
	for _, v := range p.sb.Spec.GetVolumes() {
		if path.Clean(v.GetTarget()) == tmpDir {
			return true
		}
	}
	return slices.Contains(validate.WritableRoots(p.sb.Spec), tmpDir)
}
