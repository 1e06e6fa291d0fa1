package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/BurntSushi/toml"
)

// maxFileBytes bounds the size of a configuration file, because a wrong path may name a huge file.
const maxFileBytes = 1 << 20

// Origin records which values of a configuration a file sets.
type Origin struct {
	// File is the file that was read; empty if there is none at the default path.
	File string
	set  map[string]bool
}

// Of returns the file for a key that the file sets, else "default".
func (o Origin) Of(key string) string {
	if o.set[key] {
		return o.File
	}
	return "default"
}

// ignored are keys of older daemons: what to write instead, or why there is none.
var ignored = map[string]string{
	"runtime.log_level":              "write log.level",
	"artifacts.exec_output_template": "the names of logs are fixed",
}

// Warnings returns one sentence for each key of the file that is accepted for older files and has no effect, sorted.
func (o Origin) Warnings() (list []string) {
	for _, key := range slices.Sorted(maps.Keys(ignored)) {
		if o.set[key] {
			list = append(list, fmt.Sprintf("%s has no effect: %s", key, ignored[key]))
		}
	}
	return list
}

// Load reads the named configuration file, or the one at the default path if file is empty. A named file must exist; if there
// is none at the default path, the configuration is Default. Keys that the file does not set keep their defaults. Load sets the
// defaults that depend on the paths.
//
// The error names the file, every unknown key and every refused value, and says what to write instead.
func Load(file string, p Paths) (Config, Origin, error) {
	named := file != ""
	file = cmp.Or(file, p.ConfigFile)
	c, origin := Default(), Origin{}
	data, err := read(file)
	switch {
	case err == nil:
		origin.File = file
		if c, origin.set, err = parse(file, data); err != nil {
			return Config{}, Origin{}, err
		}
	case named || !errors.Is(err, fs.ErrNotExist):
		return Config{}, Origin{}, fmt.Errorf("configuration file %s cannot be read: %w", file, err)
	}
	c.Artifacts.ExecOutputRoot = cmp.Or(c.Artifacts.ExecOutputRoot, filepath.Join(p.DataDir, "exec-logs"))
	c.Backup.Dir = cmp.Or(c.Backup.Dir, filepath.Join(p.DataDir, "backups"))
	return c, origin, nil
}

// parse reads a configuration from data, and returns the names of the keys that data sets; file is its name for error texts. It
// sets no defaults that depend on paths.
func parse(file string, data []byte) (Config, map[string]bool, error) {
	c := Default()
	var sections map[string]toml.Primitive
	meta, err := toml.Decode(string(data), &sections)
	if err != nil {
		return Config{}, nil, fmt.Errorf("configuration file %s: %w", file, err)
	}
	mistakes := c.decode(&meta, sections)
	if err := errors.Join(mistakes, unknownKeys(meta), c.Validate()); err != nil {
		separator := " "
		if strings.Contains(err.Error(), "\n") {
			separator = "\n" // one line each
		}
		return Config{}, nil, fmt.Errorf("configuration file %s:%s%w", file, separator, err)
	}
	set := map[string]bool{}
	for _, key := range meta.Keys() {
		set[key.String()] = true
	}
	return c, set, nil
}

// read returns the content of a regular file. O_NONBLOCK keeps it from waiting for the writer of a FIFO.
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

// plain removes operation and path from an error, because the caller's text has both.
func plain(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// Reload returns c with the values of next for all keys that a running daemon can reload. changed names the keys whose value
// changed; needRestart names the keys that differ but need a restart of the daemon.
func (c Config) Reload(next Config) (merged Config, changed, needRestart []string) {
	merged = c
	for _, k := range table {
		from, to := k.field(&next), k.field(&merged)
		switch {
		case reflect.DeepEqual(from.Interface(), to.Interface()):
		case k.Reload:
			to.Set(from)
			changed = append(changed, k.Name)
		default:
			needRestart = append(needRestart, k.Name)
		}
	}
	return merged, changed, needRestart
}
