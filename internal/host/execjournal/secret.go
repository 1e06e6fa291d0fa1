package execjournal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Secret is a value for the user of commands: PID 1 copies it into the directory of secrets, for that user alone, and makes Target a
// symbolic link to the copy.
type Secret struct {
	Version int    `json:"version"`
	Target  string `json:"target"`
	Value   []byte `json:"value"`
}

const (
	secretSuffix = ".secret"
	// SecretsDir is the directory in out.
	SecretsDir = "secrets"
	// ProblemsName is a file in SecretsDir; see Dir.SecretProblems.
	ProblemsName = ".problems"
	// maxSecretFile holds a value of 1 MiB in base64, and its target.
	maxSecretFile    = 2 << 20
	maxProblemsBytes = 64 << 10
	// maxRedactedBytes is the size up to which a value is looked for in what programs print.
	maxRedactedBytes = 4 << 10
)

// SecretName is the file of a Secret in ctl/exec.
func SecretName(name string) string { return name + secretSuffix }

// SecretOf parses the name of such a file.
func SecretOf(file string) (name string, ok bool) { return ownerOf(file, secretSuffix) }

// OpenSecrets opens the directory of delivered secrets in the directory at out; see openIn.
func OpenSecrets(out string, create bool) (int, error) { return openIn(out, SecretsDir, create) }

// ReadSecret reads the Secret of that name. Errors: as for ReadFile; ErrMalformed.
func ReadSecret(dirfd int, name string) (s Secret, err error) {
	data, err := ReadFile(dirfd, SecretName(name), maxSecretFile)
	if err != nil {
		return Secret{}, err
	}
	if json.Unmarshal(data, &s) != nil || s.Version != Version {
		return Secret{}, fmt.Errorf("%w: %s is not a secret that this version can read", ErrMalformed, SecretName(name))
	}
	return s, nil
}

// PutSecret writes a secret for PID 1, which delivers it at once, or before anything of the sandbox runs. A crash leaves the old one or the
// new one. Errors: invalid argument; not found before Prepare; unavailable.
func (d *Dir) PutSecret(sandboxID, name string, s Secret) error {
	s.Version = Version
	data, err := Encode(s)
	if err != nil {
		return err
	}
	if err := checkIDs(sandboxID, name); err != nil {
		return err
	}
	out, err := OpenSecrets(d.Paths(sandboxID).Out, true) // made here, it is the daemon's to remove
	if err != nil && !errors.Is(err, ErrMalformed) {
		return err
	}
	if err == nil {
		unix.Close(out)
	}
	return withDir(d.execDir(sandboxID), func(fd int) error {
		if err := Replace(fd, TempName(name, "secret"), SecretName(name), data, PrivateMode, true); err != nil {
			return unavailablef("write the secret %s: %w", name, err)
		}
		return nil
	})
}

// Secret returns a secret as PutSecret left it. Errors: not found; others.
func (d *Dir) Secret(sandboxID, name string) (s Secret, err error) {
	if err := checkIDs(sandboxID, name); err != nil {
		return s, err
	}
	err = withDir(d.execDir(sandboxID), func(fd int) error {
		s, err = ReadSecret(fd, name)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return s, notFoundf("secret %s: %w", name, err)
	}
	return s, err
}

// KeepSecrets removes all secrets but those named; PID 1 withdraws them. Idempotent.
func (d *Dir) KeepSecrets(sandboxID string, names ...string) error {
	return d.eachSecret(sandboxID, func(fd int, name string) error {
		if slices.Contains(names, name) {
			return nil
		}
		return unlinkAll(fd, SecretName(name), TempName(name, "secret"))
	})
}

// eachSecret calls fn for each secret of a sandbox. A missing directory has none.
func (d *Dir) eachSecret(sandboxID string, fn func(fd int, name string) error) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	return inDir(d.execDir(sandboxID), func(fd int) error {
		for file, err := range entries(fd) {
			if err != nil {
				return err
			}
			if name, ok := SecretOf(strings.TrimSuffix(strings.TrimPrefix(file, "."), ".tmp")); ok { // also what a killed writer left
				if err := fn(fd, name); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// SecretValues returns the values of a sandbox's secrets without final newlines, for redaction. It leaves out large ones and those that
// can't be read.
func (d *Dir) SecretValues(sandboxID string) map[string]string {
	values := map[string]string{}
	_ = d.eachSecret(sandboxID, func(fd int, name string) error {
		if s, err := ReadSecret(fd, name); err == nil && len(s.Value) <= maxRedactedBytes {
			values[name] = strings.TrimRight(string(s.Value), "\r\n")
		}
		return nil
	})
	return values
}

// SecretProblems returns what PID 1 could not deliver, one sentence each. The sandbox's root can forge it.
func (d *Dir) SecretProblems(sandboxID string) (problems []string) {
	fd, err := OpenSecrets(d.Paths(sandboxID).Out, false)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	data, err := ReadFile(fd, ProblemsName, maxProblemsBytes)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		problems = append(problems, Sentence(strings.TrimSpace(line)))
	}
	return problems
}
