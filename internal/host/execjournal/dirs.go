package execjournal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// SandboxDir is one directory of a sandbox on the host.
type SandboxDir struct {
	Path string
	// SandboxID is the sandbox whose logs the directory contains. It is empty for a directory below runRoot, where only the
	// hash RunName is known.
	SandboxID string
}

// RunName is the name of a sandbox's directory below runRoot.
func RunName(sandboxID string) string {
	return filepath.Base(filepath.Dir((&Dir{}).Paths(sandboxID).Ctl))
}

// isRunName matches the names that RunName returns.
var isRunName = regexp.MustCompile(`^[0-9a-f]{16}$`)

// Dirs lists the directories below both roots with names of sandboxes, live or not, sorted by path. All other entries are
// left out, including links. A missing root has none.
func (d *Dir) Dirs() ([]SandboxDir, error) {
	logs, err := directories(d.outputRoot, ValidExecID)
	if err != nil {
		return nil, err
	}
	runs, err := directories(d.runRoot, isRunName.MatchString)
	if err != nil {
		return nil, err
	}
	var all []SandboxDir
	for _, name := range logs {
		all = append(all, SandboxDir{Path: filepath.Join(d.outputRoot, name), SandboxID: name})
	}
	for _, name := range runs {
		all = append(all, SandboxDir{Path: filepath.Join(d.runRoot, name)})
	}
	slices.SortFunc(all, func(a, b SandboxDir) int { return cmp.Compare(a.Path, b.Path) })
	return all, nil
}

// RemoveDir removes one of Dirs with its content, as Remove does. Idempotent. Errors: invalid argument for any
// other path; otherwise as Remove.
func (d *Dir) RemoveDir(path string) error {
	root, name := filepath.Dir(filepath.Clean(path)), filepath.Base(path)
	if root == filepath.Clean(d.outputRoot) && ValidExecID(name) || root == filepath.Clean(d.runRoot) && isRunName.MatchString(name) {
		return removeTree(path, time.Now().Add(removeBudget))
	}
	return invalidf("%s is not a directory of a sandbox", path)
}

// directories returns the names of the real directories in root for which fits is true.
func directories(root string, fits func(string) bool) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", root, err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && fits(e.Name()) { // the entry's own type, so a link does not match
			names = append(names, e.Name())
		}
	}
	return names, nil
}
