package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/BurntSushi/toml"
)

// maxFileBytes bounds what is read: a configuration is small, and a wrong path may name anything.
const maxFileBytes = 1 << 20

// Load reads the configuration file that somebody named, or the one at its default place if file is empty. A file that
// was named must exist; without one at the default place the configuration is Default. Keys that the file does not set
// keep their defaults, and what depends on the paths is filled in.
//
// The error is complete: it names the file, and every unknown key and every value that is refused, with the way out.
func Load(file string, p Paths) (Config, error) {
	c, err := load(file, p.ConfigFile)
	if err != nil {
		return Config{}, err
	}
	if c.Artifacts.ExecOutputRoot == "" {
		c.Artifacts.ExecOutputRoot = filepath.Join(p.DataDir, "exec-logs")
	}
	return c, nil
}

func load(named, fallback string) (Config, error) {
	file := cmp.Or(named, fallback)
	data, err := read(file)
	if named == "" && errors.Is(err, fs.ErrNotExist) {
		return Default(), nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("configuration file %s cannot be read: %w", file, err)
	}
	return Parse(file, data)
}

// Parse reads a configuration from data; file is its name for error texts. Nothing that depends on paths is filled in.
func Parse(file string, data []byte) (Config, error) {
	c := Default()
	meta, err := toml.Decode(string(data), &c)
	if err != nil {
		return Config{}, fmt.Errorf("configuration file %s: %w", file, err)
	}
	if err := errors.Join(unknownKeys(meta), c.Validate()); err != nil {
		separator := " "
		if strings.Contains(err.Error(), "\n") {
			separator = "\n" // one line each
		}
		return Config{}, fmt.Errorf("configuration file %s:%s%w", file, separator, err)
	}
	return c, nil
}

// read returns the content of a regular file. It does not wait for the writer of a FIFO.
func read(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, plain(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, plain(err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFileBytes)
	}
	return data, nil
}

// plain takes the operation and the path off an error, since the caller says both in words.
func plain(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
