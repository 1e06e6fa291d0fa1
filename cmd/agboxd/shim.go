package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const shimName = "agbox-shim"

// findShim returns the path of the agbox-shim to mount into containers: asked, else the one beside this program, else the packaged one.
func findShim(asked string) (string, error) {
	if asked != "" {
		return asked, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	candidates := []string{filepath.Join(filepath.Dir(self), shimName), "/usr/libexec/agbox/" + shimName}
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && info.Mode().IsRegular() {
			return c, nil
		}
	}
	return "", fmt.Errorf("%s is neither at %s nor at %s: build it with `make build` or name it with --shim",
		shimName, candidates[0], candidates[1])
}

// installShim copies the shim into a directory named by its content hash, which containers mount, and returns that directory. It keeps
// older shims, because existing containers use them.
func installShim(source, dataDir string) (string, error) {
	body, err := os.ReadFile(source)
	if err != nil {
		return "", fmt.Errorf("read the shim: %w", err)
	}
	sum := sha256.Sum256(body)
	dir := filepath.Join(dataDir, "shim", hex.EncodeToString(sum[:]))
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil { // Chmod ignores the umask
		return "", fmt.Errorf("install the shim: %w", err)
	}
	return dir, writeFile(filepath.Join(dir, shimName), body, 0o755)
}

// writeFile writes body to a file. It does not touch a file with that content, so a full disk does not prevent the start of agboxd. It
// replaces any other file atomically: after a crash the file is the old one or the new one.
func writeFile(path string, body []byte, mode os.FileMode) error {
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, body) {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // fails after the rename
	_, err = tmp.Write(body)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
