package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/fault"
	"github.com/agbox/agbox/internal/host/disk"
)

// manifestName is the file that lists the others. No object has this name.
const manifestName = "manifest"

// vault is the directory with the copies of one agent.
type vault struct{ dir string }

func (k *Keeper) vault(agentID string) (vault, error) {
	if !filepath.IsLocal(agentID) || strings.ContainsRune(agentID, filepath.Separator) || agentID == "." {
		return vault{}, fmt.Errorf("agent ID %q is no name of a directory", agentID)
	}
	return vault{filepath.Join(k.o.Dir, agentID)}, nil
}

func (v vault) path(name string) string { return filepath.Join(v.dir, name) }

// manifest returns what is saved. One that does not decode counts as none: the next call of Save replaces it.
func (v vault) manifest() *storev1.SessionManifest {
	m := &storev1.SessionManifest{}
	data, err := os.ReadFile(v.path(manifestName))
	if err != nil || proto.Unmarshal(data, m) != nil {
		return &storev1.SessionManifest{}
	}
	return m
}

// has reports whether the copy of a file is there.
func (v vault) has(f *storev1.SessionFile) bool {
	st, err := os.Lstat(v.path(f.GetObject()))
	return err == nil && f.GetObject() != "" && st.Mode().IsRegular() && st.Size() == f.GetSize()
}

func (v vault) open(f *storev1.SessionFile) (*os.File, error) { return os.Open(v.path(f.GetObject())) }

// add stores the content of a file, and returns the name of the copy. Until commit it belongs to nothing.
func (v vault) add(r io.Reader) (object string, size int64, err error) {
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return "", 0, err
	}
	tmp, err := os.CreateTemp(v.dir, ".tmp-*")
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // fails after the rename
	sum := sha256.New()
	size, err = io.Copy(io.MultiWriter(tmp, sum), r)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", 0, err
	}
	object = hex.EncodeToString(sum.Sum(nil))
	return object, size, os.Rename(tmp.Name(), v.path(object))
}

// commit makes m what is saved, and removes the copies that it does not name.
func (v vault) commit(m *storev1.SessionManifest) error {
	if _, err := os.Lstat(v.dir); errors.Is(err, fs.ErrNotExist) && len(m.GetFiles()) == 0 {
		return nil
	}
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return err
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the manifest of a session: %w", err)
	}
	err = fault.Around(fault.Session, "save", func() error {
		if err := disk.Sync(v.dir); err != nil { // the names of the copies, before the manifest names them
			return err
		}
		if err := disk.Replace(v.path(manifestName), data, 0o600); err != nil {
			return err
		}
		return errors.Join(disk.Sync(v.dir), disk.Sync(filepath.Dir(v.dir)))
	})
	if err != nil {
		return err
	}
	return v.sweep(m)
}

// sweep removes what m does not name: copies of older content, and files of calls that were cut off.
func (v vault) sweep(m *storev1.SessionManifest) error {
	keep := map[string]bool{manifestName: true}
	for _, f := range m.GetFiles() {
		keep[f.GetObject()] = true
	}
	entries, err := os.ReadDir(v.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			err = errors.Join(err, disk.Remove(v.path(e.Name())))
		}
	}
	return err
}

func (v vault) remove() error {
	return fault.Around(fault.Session, "remove", func() error { return os.RemoveAll(v.dir) })
}
