// Package shimdir finds agbox-shim and installs it where containers mount it.
package shimdir

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agbox/agbox/internal/host/disk"
)

// Name is the name of the program.
const Name = "agbox-shim"

// Find returns the path of the agbox-shim to mount into containers: asked, else the one beside this program, else the packaged one.
func Find(asked string) (string, error) {
	if asked != "" {
		return asked, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	candidates := []string{filepath.Join(filepath.Dir(self), Name), "/usr/libexec/agbox/" + Name}
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && info.Mode().IsRegular() {
			return c, nil
		}
	}
	return "", fmt.Errorf("%s is neither at %s nor at %s: build it with `make build` or name it with --shim",
		Name, candidates[0], candidates[1])
}

// Install copies the shim into a directory named by its content hash, which containers mount, and returns that directory. It keeps
// older shims, because existing containers use them. It does not touch an installed shim, so that needs no free space.
func Install(source, dataDir string) (string, error) {
	body, err := os.ReadFile(source)
	if err != nil {
		return "", fmt.Errorf("read the shim: %w", err)
	}
	sum := sha256.Sum256(body)
	dir := filepath.Join(dataDir, "shim", hex.EncodeToString(sum[:]))
	if err := makeDir(dir, 0o755); err != nil {
		return "", fmt.Errorf("install the shim: %w", err)
	}
	return dir, disk.Replace(filepath.Join(dir, Name), body, 0o755)
}

// makeDir makes a directory with the mode, whatever the umask.
func makeDir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() == mode {
		return err
	}
	return os.Chmod(path, mode)
}
