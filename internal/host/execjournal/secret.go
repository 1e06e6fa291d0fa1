package execjournal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Secret is a value for the user of commands: PID 1 copies it into the directory of secrets, for that user alone, and makes Target a
// symbolic link to the copy. An empty Target has none.
type Secret struct {
	Version int    `json:"version"`
	Target  string `json:"target"`
	Value   []byte `json:"value"`
	// Roots: the value is a certificate. PID 1 puts those that the image trusts before it, or Others if the image has no file of these, and every user
	// may read it. Others are at most 1 MiB.
	Roots  bool   `json:"roots,omitempty"`
	Others []byte `json:"others,omitempty"`
}

// Names that no secret and no service of a spec has: of the Secret with the authority that signs for hosts to whose requests headers are added, and of the
// service whose files are the values for them. No container has these. The latter is no file name: it is hashed.
const (
	AuthoritySecret = "_authority"
	Injector        = ":injector"
)

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

// ServiceSecrets returns the directory of the secrets of a service, and makes it if it is missing. Its container mounts it read-only. The
// files in it are the values themselves, named by their targets. Errors: not found before Prepare; others.
func (d *Dir) ServiceSecrets(sandboxID, service string) (string, error) {
	if err := checkSandboxID(sandboxID); err != nil {
		return "", err
	}
	dir := d.serviceSecrets(sandboxID, service)
	if err := ensureDir(filepath.Dir(dir), 0o700, self()); err != nil {
		return "", err
	}
	return dir, ensureDir(dir, 0o755, self())
}

// InjectedName is the file with the value of a secret that is added to requests. It is another one for another source: rules and values follow a new spec
// one after the other, and a rule must never find the value that is meant for other hosts.
func InjectedName(name, source string) string { return name + "." + RunName(source) }

// InjectedSecret returns the path of the value of a secret that is added to requests, from a source on the host.
func (d *Dir) InjectedSecret(sandboxID, name, source string) string {
	return filepath.Join(d.serviceSecrets(sandboxID, Injector), InjectedName(name, source))
}

func (d *Dir) serviceSecrets(sandboxID, service string) string {
	return filepath.Join(filepath.Dir(d.Paths(sandboxID).Ctl), "services", RunName(service)) // a name may be ".."
}

// serviceMode lets every user of a service's container read: which one its program runs as is not known.
const serviceMode = 0o444

func (d *Dir) putServiceSecret(sandboxID, service, file string, value []byte) error {
	dir, err := d.ServiceSecrets(sandboxID, service)
	if err != nil {
		return err
	}
	return withDir(dir, func(fd int) error {
		if err := Replace(fd, TempName(file, "secret"), file, value, serviceMode, true); err != nil {
			return unavailablef("write the secret %s of service %s: %w", file, service, err)
		}
		return nil
	})
}

// PutSecret writes a secret for PID 1, which delivers it at once, or before anything of the sandbox runs. With a service, name is the file
// in its directory, and the target counts for nothing. A crash leaves the old one or the new one. Errors: invalid argument; not found
// before Prepare; unavailable.
func (d *Dir) PutSecret(sandboxID, service, name string, s Secret) error {
	if !ValidExecID(name) {
		return invalidf("%q is not the name of a secret", name)
	}
	if service != "" {
		return d.putServiceSecret(sandboxID, service, name, s.Value)
	}
	s.Version = Version
	data, err := Encode(s)
	if err != nil {
		return err
	}
	if err := checkIDs(sandboxID, name); err != nil {
		return err
	}
	out, err := d.giveIn(d.Paths(sandboxID).Out, SecretsDir) // made here, it is the daemon's to remove
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

// HasSecret reports whether PutSecret's file is there. It does not read it.
func (d *Dir) HasSecret(sandboxID, service, name string) bool {
	if checkIDs(sandboxID, name) != nil {
		return false
	}
	dir, file := d.execDir(sandboxID), SecretName(name)
	if service != "" {
		dir, file = d.serviceSecrets(sandboxID, service), name
	}
	var st unix.Stat_t
	return withDir(dir, func(fd int) error { return unix.Fstatat(fd, file, &st, unix.AT_SYMLINK_NOFOLLOW) }) == nil
}

// Secret returns a secret as PutSecret left it. Errors: not found; others.
func (d *Dir) Secret(sandboxID, service, name string) (s Secret, err error) {
	if err := checkIDs(sandboxID, name); err != nil {
		return s, err
	}
	if service != "" {
		err = withDir(d.serviceSecrets(sandboxID, service), func(fd int) error {
			s.Value, err = ReadFile(fd, name, maxSecretFile)
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			return s, notFoundf("secret %s of service %s: %w", name, service, err)
		}
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

// KeepSecrets removes all secrets but those named; PID 1 withdraws those of the primary. Idempotent.
func (d *Dir) KeepSecrets(sandboxID, service string, names ...string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	if service != "" {
		return inDir(d.serviceSecrets(sandboxID, service), func(fd int) error {
			for name, err := range entries(fd) {
				if err == nil && !slices.Contains(names, name) {
					err = unlinkAll(fd, name)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
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

// SecretValues returns the values of the secrets of a sandbox's primary or of a service, without final newlines, for redaction. It leaves
// out large ones and those that can't be read.
func (d *Dir) SecretValues(sandboxID, service string) map[string]string {
	values := map[string]string{}
	if service != "" {
		_ = inDir(d.serviceSecrets(sandboxID, service), func(fd int) error {
			for name := range entries(fd) {
				if value, err := ReadFile(fd, name, maxRedactedBytes); err == nil {
					values[name] = strings.TrimRight(string(value), "\r\n")
				}
			}
			return nil
		})
		return values
	}
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
