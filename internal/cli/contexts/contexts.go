// Package contexts keeps the named hosts of agbox in one file of its user.
package contexts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
)

// Default names the host of agbox without a context: the socket of this user's own daemon or of the system service.
const Default = "default"

// Context is one named host.
type Context struct {
	Host string `json:"host"`
	// TLS files of a tcp:// host, absolute paths; otherwise empty.
	TLSCert string `json:"tls_cert,omitempty"`
	TLSKey  string `json:"tls_key,omitempty"`
	TLSCA   string `json:"tls_ca,omitempty"`
}

// File is the content of the file.
type File struct {
	// Current is the context of commands that name none; empty: Default.
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`
}

// maxBytes bounds the size of the file.
const maxBytes = 1 << 20

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.+-]{0,63}$`)

// CheckName refuses what can't be the name of a context in the file.
func CheckName(name string) error {
	switch {
	case name == Default:
		return fmt.Errorf("the name %q is that of the host without a context; choose another name", Default)
	case !nameForm.MatchString(name):
		return fmt.Errorf("bad name %q: write 1 to 64 letters, digits, \"_\", \".\", \"+\" or \"-\", with a letter or digit first", name)
	}
	return nil
}

// Path returns the path of the file: agbox/contexts.json in $XDG_CONFIG_HOME, or in ~/.config.
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the file of contexts: %w", err)
	}
	return filepath.Join(dir, "agbox", "contexts.json"), nil
}

// Load reads the file. A missing one has no contexts. Errors name the file.
func Load(path string) (File, error) {
	f := File{Contexts: map[string]Context{}}
	text, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return File{}, fmt.Errorf("read the contexts: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // a rewrite would lose them
	if err := d.Decode(&f); err != nil {
		return File{}, fmt.Errorf("contexts in %s: %w", path, err)
	}
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	return f, nil
}

func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO must not block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxBytes)
	}
	return text, err
}

// Update changes the file: it reads it, calls change and replaces it if change returns nil. Concurrent updates wait for each other, and a
// reader or a crash finds the old or the new content. The file has mode 0600, and is created with its directory when needed.
func Update(path string, change func(*File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the directory of the contexts: %w", err)
	}
	if kept, err := filepath.EvalSymlinks(path); err == nil {
		path = kept // of a user who keeps such files elsewhere
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() // ends the lock
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir.Name(), err)
	}
	f, err := Load(path)
	if err != nil {
		return err
	}
	if err := change(&f); err != nil {
		return err
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := replace(path, append(text, '\n')); err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	return dir.Sync()
}

func replace(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // it does not exist after success
	_, err = tmp.Write(text)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
