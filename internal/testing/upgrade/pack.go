package upgrade

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// pack archives what find's arguments select.
const pack = `set -euo pipefail
find . "$@" -print0 | sort -z |
  tar --create --null --no-recursion --files-from=- --format=pax --pax-option=delete=atime,delete=ctime \
    --owner=0 --group=0 --numeric-owner --mtime=@0 |
  gzip -9 --no-name`

// Pack writes a data directory to a tar.gz file, with modes and without owners and times; without the entries of its root whose names are in without.
// Sockets and pipes are left out.
func Pack(dir, file string, without ...string) error {
	args := []string{"-c", pack, "pack", "-mindepth", "1"}
	for _, name := range without {
		args = append(args, "-path", "./"+name, "-prune", "-o")
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	cmd := exec.Command("bash", append(args, "!", "-type", "s", "!", "-type", "p")...)
	cmd.Dir, cmd.Stdout = dir, f
	return errors.Join(run(cmd), f.Close())
}

// Unpack makes the directory that Pack has written. Its files belong to the caller, with the archived modes whatever the umask is.
func Unpack(file, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return run(exec.Command("tar", "--extract", "--gzip", "--file", file, "--directory", dir, "--no-same-owner", "--preserve-permissions", "--touch"))
}

func run(cmd *exec.Cmd) error {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, stderr.Bytes())
	}
	return nil
}
